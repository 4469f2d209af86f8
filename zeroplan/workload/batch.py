"""What one micro-step of one GPU computes on, and with which kernels."""

from zeroplan.records import dataclass
from zeroplan.units import DTYPE_BYTES, Size
from zeroplan.workload.tuning import Tuning

__all__ = ["Batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences of one micro-step, and the kernels that shape what autograd keeps of them."""

    sequences: Size = 1
    """[count]"""
    sequence_length: Size = 1
    """[tokens]"""
    dtype: str = "bf16"
    """Compute dtype."""
    attention: str = "flash"
    """flash, flash-expanded-kv or math."""
    norm: str = "fused"
    """fused, or eager: fp32 Python norms, and Python activations where the model's class has them."""
    rope: str = "half"
    """half or complex."""
    loss: str = "fp32-logits"
    """fp32-logits, model-dtype-logits, compiled, chunked or fused-linear."""
    keep_logits: bool = False
    """The training loop holds the logits until those of the next micro-step replace them."""
    experts: str = "grouped"
    """grouped, or loop: one expert after the other."""
    expert_imbalance: float = 1.0
    """Tokens of the fullest expert over the mean; matters to the loop alone. [1]"""
    expert_alignment: int = 1
    """Rows of a grouped matmul to which each expert's are rounded up. [count]"""
    compile: bool = False
    float8: str = "none"
    """none, tensorwise or rowwise: whether linear layers of blocks run in fp8, and their scales."""
    autocast: bool = False
    """The parameters are fp32 and torch.autocast casts what matmuls read."""
    tuning: Tuning | None = None
    """What is trained, where that is not everything."""

    @property
    def tokens(self) -> Size:
        """[tokens]"""
        return self.sequences * self.sequence_length

    @property
    def itemsize(self) -> int:
        """Bytes per element of the compute dtype. [B]"""
        return DTYPE_BYTES[self.dtype]

    @property
    def trains_head(self) -> bool:
        """Whether a gradient of the head's weight is wanted."""
        return self.tuning is None or not {"all", "head"}.isdisjoint(self.tuning.trained)

    @property
    def widens_logits(self) -> bool:
        """Whether the logits are cast to fp32 before the loss."""
        casts = self.autocast or (self.tuning is not None and self.tuning.autocast)
        return self.loss == "fp32-logits" or (self.loss == "model-dtype-logits" and casts)

    @property
    def eager(self) -> bool:
        """Whether norms and activations are written in Python; compiling fuses them anyway."""
        return self.norm == "eager" and not self.compile

    @property
    def parameter_itemsize(self) -> int:
        """Bytes per element of the parameters in use, and so of their gradients. [B]"""
        return DTYPE_BYTES["fp32"] if self.autocast else self.itemsize
