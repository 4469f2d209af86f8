"""Which strategies and models read which keys; the others ignore them."""

from collections.abc import Iterable, Iterator
from typing import Final

from zeroplan.rows import plain
from zeroplan.spec.architecture import Architecture, Component
from zeroplan.spec.images import sees_images
from zeroplan.spec.latent_attention import LatentAttention
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.spec.reading import flatten, keys
from zeroplan.spec.run import WITHOUT_LOGITS, Run, Strategy, TuningChoice

__all__ = ["applies", "ignored_keys", "model_notes"]

_DDP: Final = frozenset[Strategy]({"ddp", "torch-zero1"})
_FSDP2: Final = frozenset[Strategy]({"fsdp2", "hsdp"})
_FSDP: Final = _FSDP2 | frozenset[Strategy]({"fsdp1"})
_DEEPSPEED: Final = frozenset[Strategy]({"zero0", "zero1", "zero2", "zero3"})
_FLAT: Final = frozenset[Strategy]({"zero1", "zero2"})
_ZERO3: Final = frozenset[Strategy]({"zero3"})

_WHOLE: Final = frozenset[Strategy]({"none"}) | _DDP

_READERS: Final[dict[str, frozenset[Strategy]]] = {
    "training.optimizer_state_dtype": _DDP | _FSDP | frozenset[Strategy]({"none"}),
    "tuning.lora_autocast": _WHOLE,
    "tuning.frozen_dtype": _WHOLE | _FSDP,
    "training.optimizer_in_backward": _FSDP2 | frozenset[Strategy]({"none"}),
    "sharding.shard_size": _FSDP,
    "sharding.replicate_size": frozenset({"hsdp", "fsdp1"}),
    "sharding.reshard_after_forward": _FSDP,
    "sharding.root_reshard_after_forward": _FSDP2,
    "sharding.unshard_in_backward": _FSDP2,
    "sharding.reshard_after_backward": _FSDP2,
    "sharding.all_reduce": frozenset({"hsdp"}),
    "sharding.root_wrap": _FSDP,
    "sharding.synchronize_gradients": _DDP | _FSDP,
    "sharding.bucket_bytes": _DDP,
    "sharding.gradient_as_bucket_view": _DDP,
    "sharding.parameters_as_bucket_view": frozenset({"torch-zero1"}),
    "sharding.use_orig_params": frozenset({"fsdp1"}),
    "sharding.backward_prefetch": frozenset({"fsdp1"}),
    "sharding.forward_prefetch_blocks": _FSDP2,
    "sharding.backward_prefetch_blocks": _FSDP2,
    "sharding.fp8_all_gather": _FSDP2,
    "sharding.deepspeed.allgather_bucket_size": _FLAT,
    "sharding.deepspeed.use_multi_rank_bucket_allreduce": _FLAT,
    "sharding.deepspeed.round_robin_gradients": _FLAT,
    "sharding.deepspeed.sub_group_size": _ZERO3,
    "sharding.deepspeed.mics_shard_size": _ZERO3,
    "sharding.deepspeed.mics_hierarchical_params_gather": _ZERO3,
    "sharding.deepspeed.zero_hpz_partition_size": _ZERO3,
    "sharding.deepspeed.zero_quantized_weights": _ZERO3,
    "sharding.deepspeed.zero_quantized_gradients": _ZERO3,
    "sharding.offload_optimizer": _FLAT | _ZERO3,
    "sharding.offload_parameters": _ZERO3 | _FSDP,
    "sharding.offload_pin_memory": _FLAT | _ZERO3 | _FSDP,
}


def applies(dotted: str, strategies: Iterable[Strategy]) -> bool:
    """Return whether any of the strategies reads a key."""
    readers = _readers(dotted)
    return not readers or not readers.isdisjoint(strategies)


def ignored_keys(run: Run, strategies: Iterable[Strategy]) -> tuple[str, ...]:
    """Say which keys of a run were set although none of the strategies reads them."""
    named = tuple(strategies)
    known = keys()
    return tuple(
        f"{dotted} is ignored: it is a key of {', '.join(sorted(_readers(dotted)))} only."
        for dotted, value in flatten(plain(run)).items()
        if value != known[dotted].default and not applies(dotted, named)
    )


def model_notes(run: Run, architecture: Architecture) -> tuple[str, ...]:
    """Say which keys of a run have no meaning for its model, or go beyond it."""
    parts = [
        sublayer
        for stack in architecture.stacks
        for block in stack.blocks
        for sublayer in block.sublayers
    ]
    positions = {getattr(part.component, "position", None) for part in parts}
    latent = any(isinstance(part.component, LatentAttention) for part in parts)
    norms = {norm.kind for part in parts for norm in (part.norm, part.residual_norm) if norm}
    known, notes = keys(), [*_tuning_notes(run.tuning)]
    if run.model.rope != known["model.rope"].default and not (latent or "rope" in positions):
        notes.append(f"model.rope is ignored: {architecture.name} has no rotary positions.")
    if run.model.norm != known["model.norm"].default and "rms" not in norms:
        notes.append(f"model.norm is ignored: {architecture.name} has no RMSNorm.")
    if run.model.loss != known["model.loss"].default and architecture.head is None:
        notes.append(f"model.loss is ignored: {architecture.name} has no head.")
    if run.model.keep_logits and run.model.loss in WITHOUT_LOGITS:
        notes.append(f"model.keep_logits is ignored: the {run.model.loss} loss has no logits.")
    notes += _kind_notes(run, architecture, [part.component for part in parts])
    longest, asked = architecture.max_positions, run.training.sequence_length
    if longest is not None and asked is not None and asked > longest:
        notes.append(
            f"training.sequence_length = {asked} is beyond the {longest} positions that the file "
            "of the model allows."
        )
    version = run.sharding.deepspeed.version
    if version != known["sharding.deepspeed.version"].default:
        notes.append(
            f"sharding.deepspeed.version = {version} decides which keys there are; defaults and "
            "steps are those of 0.19.8, MiCS's of 0.19.6."
        )
    return tuple(notes)


def _kind_notes(run: Run, architecture: Architecture, components: list[Component]) -> Iterable[str]:
    """Say which keys are for experts or images that the model has not."""
    sparse = any(isinstance(each, MixtureOfExperts) for each in components)
    lacking = {
        "model.experts": (sparse, "no experts"),
        "model.expert_imbalance": (sparse and run.model.experts == "loop", "no loop over experts"),
        "model.expert_alignment": (sparse and run.model.experts == "grouped", "no grouped experts"),
        "training.images_per_sequence": (sees_images(architecture), "no vision tower"),
        "training.image_tokens": (sees_images(architecture), "no vision tower"),
    }
    values, known = flatten(plain(run)), keys()
    for dotted, (present, absent) in lacking.items():
        if not present and values[dotted] != known[dotted].default:
            yield f"{dotted} is ignored: {architecture.name} has {absent}."


def _tuning_notes(tuning: TuningChoice) -> Iterator[str]:
    """Say which keys about adapters and quantisation wait for another one."""
    known = keys()
    waiting = {
        "lora_rank = 0": ("lora_targets", "lora_dropout") if not tuning.lora_rank else (),
        'base_quantization is not "nf4"': ("double_quantization", "quantization_storage")
        if tuning.base_quantization != "nf4"
        else (),
    }
    for why, names in waiting.items():
        for name in names:
            if getattr(tuning, name) != known[f"tuning.{name}"].default:
                yield f"tuning.{name} is ignored: {why}."


def _readers(dotted: str) -> frozenset[Strategy]:
    """Return the strategies that read a key; an empty set stands for all."""
    if ".stage3_" in dotted or dotted.startswith("sharding.deepspeed.offload_"):
        return _ZERO3
    everyone = _DEEPSPEED if dotted.startswith("sharding.deepspeed.") else frozenset[Strategy]()
    return _READERS.get(dotted, everyone)
