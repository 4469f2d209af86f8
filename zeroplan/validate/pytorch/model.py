"""The module that stands for the model: zeroplan's own, or the class of transformers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from torch import nn

from zeroplan.errors import MissingPartError
from zeroplan.schedule.plan import Plan
from zeroplan.spec.architecture import Architecture
from zeroplan.validate.pytorch.decoder import Decoder
from zeroplan.validate.pytorch.environment import DTYPES
from zeroplan.validate.pytorch.kernels import Dropout, FusedNorm
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["own", "published"]


IGNORED: Final = ("architectures", "dtype", "torch_dtype", "use_cache", "auto_map")
SET: Final = {"attention_dropout": 0.0, "attn_pdrop": 0.0, "use_cache": False}
"""With dropout the CPU's attention kernel falls back to scores in memory, which CUDA's does not."""


def own(model: Architecture, plan: Plan) -> Subject:
    """Build zeroplan's own module."""
    batch = plan.workload.batch
    module = Decoder(model, batch, DTYPES[batch.dtype])
    return Subject(
        module=module,
        embeddings=(module.embeddings,),
        blocks=module.blocks,
        tail=(module.norm, module.head),
        tied=module.head.weight is module.embeddings.weight,
    )


def published(config: Mapping[str, object], plan: Plan) -> Subject:
    """Build the class that transformers has for a model file."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415  # own() does without

    given = {key: value for key, value in config.items() if key not in IGNORED}
    try:
        settings = AutoConfig.for_model(**{**given, **SET})
        module = AutoModelForCausalLM.from_config(
            settings,
            attn_implementation="sdpa",
            dtype=DTYPES[plan.training.parameter_dtype],
        )
    except (KeyError, TypeError, ValueError) as error:
        reason, *_ = str(error).partition(". ")
        raise MissingPartError(f"transformers cannot build this model: {reason}.") from None
    for part in module.modules():
        _stand_in(part)
    return _subject(module, plan)


def _subject(module: Any, plan: Plan) -> Subject:
    number = sum(unit.kind == "block" for unit in plan.units)
    blocks = next(
        (m for m in module.modules() if isinstance(m, nn.ModuleList) and len(m) == number), None
    )
    if blocks is None:
        raise MissingPartError(f"the class of transformers has no list of {number} blocks")
    head, table = module.get_output_embeddings(), module.get_input_embeddings()
    children = list(module.base_model.children())
    norms = [each for each in children if "norm" in type(each).__name__.lower()]
    return Subject(
        module=module,
        embeddings=tuple(each for each in children if isinstance(each, nn.Embedding)),
        blocks=blocks,
        tail=(*norms[-1:], head),
        tied=head.weight is table.weight,
        logits=lambda output: output.logits,
        conditions=_unpacked,
    )


@contextmanager
def _unpacked() -> Iterator[None]:
    """Tell transformers that no batch is packed: it would look at positions, which fakes have not.

    Otherwise it makes a mask, and attention then runs without the causal kernel and without
    grouped queries (`find_packed_sequence_indices` in transformers/masking_utils.py, 5.24).
    """
    from transformers import masking_utils  # noqa: PLC0415  # own() does without

    original = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda _: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = original


def _stand_in(part: nn.Module) -> None:
    """Let LayerNorm and dropout allocate what they do on CUDA."""
    if isinstance(part, nn.LayerNorm):
        part.forward = lambda x: FusedNorm.apply(x, 2, *part.parameters())
    elif isinstance(part, nn.Dropout) and part.p:
        part.forward = Dropout.apply
