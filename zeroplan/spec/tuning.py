"""What of a model is trained: all of it, some parts, or adapters beside a frozen base."""

from typing import Annotated, Literal

from zeroplan.records import dataclass
from zeroplan.spec.words import Depth, Pattern, Share, StoredDtype

__all__ = ["Quantization", "StorageDtype", "TuningChoice"]

Quantization = Literal["none", "nf4", "int8"]
StorageDtype = Literal["uint8", "bf16", "fp16", "fp32"]
Names = Annotated[
    str, Pattern("[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*", "names with commas between them")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningChoice:
    """What is trained, and how the frozen rest is stored."""

    lora_rank: Depth = 0
    """Rank of LoRA adapters; 0 has none."""
    lora_targets: Names = "all-linear"
    """Projections with an adapter: all-linear, attention, mlp, or their names (q_proj,v_proj)."""
    lora_dropout: Share = 0.0
    """Share of an adapter's inputs that is dropped. [1]"""
    lora_autocast: bool = True
    """Whether torch.autocast runs adapters that are wider than the compute dtype."""
    trainable: Names | None = None
    """Parts that are trained: all, none, embedding, blocks, last-K, norm, head, or a tower's name;
    auto is all, beside adapters none."""
    frozen_dtype: StoredDtype | None = None
    """Dtype of frozen parameters; auto is parameter_dtype, under adapters the compute dtype."""
    base_quantization: Quantization = "none"
    """Quantisation of the frozen linear layers (bitsandbytes); embedding and head have none."""
    double_quantization: bool = True
    """nf4: whether the scales are quantised as well."""
    quantization_storage: StorageDtype | None = None
    """nf4: dtype that holds the packed weights; auto is uint8, the compute dtype where sharded."""

    @property
    def trains_all(self) -> bool:
        """Whether nothing is frozen."""
        return not self.lora_rank and self.trainable in (None, "all")
