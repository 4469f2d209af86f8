"""The class that transformers has for a model file."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from zeroplan.errors import MissingPartError
from zeroplan.schedule.plan import Plan
from zeroplan.spec.architecture import Architecture, Stack
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.validate.pytorch.conditions import as_on_cuda
from zeroplan.validate.pytorch.environment import DTYPES, token_ids
from zeroplan.validate.pytorch.experts import register_loop
from zeroplan.validate.pytorch.images import reads_images
from zeroplan.validate.pytorch.kernels import FusedNorm
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["published", "stand_in"]

IGNORED: Final = ("architectures", "dtype", "torch_dtype", "use_cache", "auto_map")
SET: Final = {"use_cache": False, "use_mamba_kernels": False}
EXPERTS: Final = {"grouped": "grouped_mm", "loop": "even_loop"}
"""`model.experts`: what transformers calls it, or what stands in for it."""


def published(config: Mapping[str, object], model: Architecture, plan: Plan) -> Subject:
    """Build the class that transformers has for a model file."""
    family = _family(model)
    try:
        module = _built(config, family, model, plan)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason, *_ = str(error).partition(". ")
        raise MissingPartError(f"transformers cannot build this model: {reason}.") from None
    for parameter in module.parameters():
        parameter.data = parameter.data.to(DTYPES[plan.training.parameter_dtype])
    for part in module.modules():
        stand_in(part)
    return _subject(module, model, plan)


def _family(model: Architecture) -> str:
    """Return the `AutoModel` class that has the model's loss head."""
    kinds = tuple(dict.fromkeys(stack.kind for stack in model.stacks))
    if kinds in _FAMILIES and model.head is not None and not model.head.pooled:
        return _FAMILIES[kinds]
    raise MissingPartError(
        f"validate trains on next or hidden tokens, which {model.class_name or model.name} has no "
        "head for"
    )


_FAMILIES: Final[dict[tuple[str, ...], str]] = {
    ("decoder",): "AutoModelForCausalLM",
    ("encoder",): "AutoModelForMaskedLM",
    ("encoder", "decoder"): "AutoModelForSeq2SeqLM",
    ("vision", "decoder"): "AutoModelForImageTextToText",
}
"""Kinds of a model's stacks: who builds it."""


def _built(config: Mapping[str, object], family: str, model: Architecture, plan: Plan) -> Any:
    import transformers  # noqa: PLC0415  # zeroplan's own module does without

    given = {key: value for key, value in config.items() if key not in IGNORED}
    settings = transformers.AutoConfig.for_model(**{**given, **SET})
    settings.get_text_config().use_cache = False
    module = getattr(transformers, family).from_config(
        settings,
        attn_implementation="sdpa",
        dtype=DTYPES[plan.training.parameter_dtype],
        **_experts(model, plan),
    )
    module.tie_weights()
    return module


def _experts(model: Architecture, plan: Plan) -> dict[str, str]:
    """Return how the experts run, where there are any."""
    batch = plan.workload.batch
    parts = {part.component for s in model.stacks for b in s.blocks for part in b.sublayers}
    if not any(isinstance(part, MixtureOfExperts) for part in parts):
        return {}
    if batch.expert_alignment > 1:
        raise MissingPartError("the classes of transformers do not align experts")
    register_loop(EXPERTS["loop"], batch)
    return {"experts_implementation": EXPERTS[batch.experts]}


def _subject(module: Any, model: Architecture, plan: Plan) -> Subject:
    head, table = module.get_output_embeddings(), module.get_input_embeddings()
    children = list(module.base_model.children())
    norms = [each for each in children if "norm" in type(each).__name__.lower()]
    return Subject(
        module=module,
        embeddings=tuple(each for each in children if isinstance(each, nn.Embedding)),
        blocks=tuple(_lists(module, model.stacks)),
        tail=(*norms[-1:], head),
        tied=head.weight is table.weight,
        inputs=_inputs(module.config, model, plan),
        logits=lambda output: output.logits,
        conditions=as_on_cuda,
    )


def _inputs(
    settings: Any, model: Architecture, plan: Plan
) -> Callable[[Plan], dict[str, torch.Tensor]]:
    if model.stacks[0].kind == "vision":
        return reads_images(settings, model, plan)
    names = ("input_ids", "decoder_input_ids")[: len(model.stacks)]
    return lambda plan: {name: token_ids(plan) for name in names}


def _lists(module: nn.Module, stacks: tuple[Stack, ...]) -> list[nn.ModuleList]:
    """Return the list of blocks of each stack, in order; lists inside of blocks are not looked at."""
    outer: list[tuple[str, nn.ModuleList]] = []
    for name, part in module.named_modules():
        inside = any(name.startswith(f"{other}.") for other, _ in outer)
        if isinstance(part, nn.ModuleList) and not inside:
            outer.append((name, part))
    found: list[nn.ModuleList] = []
    left = iter(part for _, part in outer)
    for stack in stacks:
        own: list[nn.ModuleList] = []
        while sum(map(len, own)) < len(stack.blocks):
            own.append(next(left, nn.ModuleList()))
            if not own[-1]:
                number = len(stack.blocks)
                raise MissingPartError(f"the class of transformers has no list of {number} blocks")
        found += own
    return found


def stand_in(part: nn.Module) -> None:
    """Let LayerNorm allocate what it does on CUDA."""
    if isinstance(part, nn.LayerNorm):
        part.forward = lambda x: FusedNorm.apply(x, 2, *part.parameters())
