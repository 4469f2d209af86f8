"""Which batch a file means: its total is micro-batch times accumulation times GPUs."""

from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.records import dataclass

__all__ = ["GPUS", "Batch", "known", "known_gpus", "share_batch"]

MICRO: Final = "training.micro_batch_size"
STEPS: Final = "training.gradient_accumulation_steps"
GPUS: Final = "cluster.gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The numbers of a file that make up its batch; None where it leaves one open."""

    total: int | None
    """Sequences per optimizer step, all GPUs together. [count]"""
    micro: int | None
    """Sequences per GPU per micro-step. [count]"""
    steps: int | None
    """Micro-steps per optimizer step. [count]"""
    names: tuple[str, str, str]
    """What the file calls them."""


def share_batch(batch: Batch, draft: Draft, asked: Asked) -> None:
    """Set micro-batch, accumulation and, where nothing else says them, the GPUs.

    Source: `_set_batch_related_parameters` in deepspeed/runtime/config.py (0.19.8), whose rest of a
    division is an error, as it is there (`_batch_assertion`).
    """
    micro, steps = (
        _known(asked, key, own) for key, own in ((MICRO, batch.micro), (STEPS, batch.steps))
    )
    total_name, micro_name, steps_name = batch.names
    gpus = known_gpus(draft, asked)
    flagged = MICRO in asked.flags or STEPS in asked.flags
    if flagged and batch.total is not None and micro and steps:
        draft.remark(f"{total_name} = {batch.total} no longer holds: flags win over it")
        batch = Batch(total=None, micro=micro, steps=steps, names=batch.names)
    if batch.total is not None:
        if gpus is None and micro and steps:
            gpus = _divided(
                batch.total,
                micro * steps,
                f"{micro_name} {micro} x {steps_name} {steps}",
                batch,
                draft,
            )
            draft.set(GPUS, gpus, f"{total_name} {batch.total} / ({micro} x {steps})")
        if gpus is None:
            gpus = draft.default(GPUS, f"{total_name} = {batch.total} needs the number of GPUs")
            draft.set(GPUS, gpus, "not given, zeroplan's default")
        micro, steps = _solved(batch, micro, steps, gpus, draft)
    if micro is not None:
        draft.set(MICRO, micro, f"{micro_name}")
    if steps is not None:
        draft.set(STEPS, steps, f"{steps_name}")


def known(draft: Draft, asked: Asked, key: str) -> Any:
    """Return a key as a flag has it, else as the file, else as anything else that is read."""
    if key in asked.flags:
        return asked.flags[key]
    return draft.values.get(key, asked.value(key))


def known_gpus(draft: Draft, asked: Asked) -> int | None:
    """Return how many GPUs there are, where anything says it. [count]"""
    found = known(draft, asked, GPUS)
    return found if isinstance(found, int) else None


def _known(asked: Asked, key: str, own: int | None) -> int | None:
    """Return a flag's number, else the file's, else what other files say."""
    found = asked.flags.get(key, own)
    if found is None:
        found = asked.value(key)
    return found if isinstance(found, int) else None


def _solved(
    batch: Batch, micro: int | None, steps: int | None, gpus: int, draft: Draft
) -> tuple[int, int]:
    total, (total_name, micro_name, steps_name) = batch.total or 0, batch.names
    if micro and steps:
        if micro * steps * gpus != total:
            raise draft.fault(
                f"{total_name} = {total} is not {micro_name} {micro} x {steps_name} {steps} x {gpus} "
                f"GPUs = {micro * steps * gpus}: mend one of them, or leave one out."
            )
        return micro, steps
    if micro:
        steps = _divided(total, micro * gpus, f"{micro_name} {micro} x {gpus} GPUs", batch, draft)
        draft.remark(f"{steps_name} = {total_name} {total} / ({micro} x {gpus} GPUs) = {steps}")
        return micro, steps
    steps = steps or 1
    micro = _divided(total, steps * gpus, f"{steps_name} {steps} x {gpus} GPUs", batch, draft)
    draft.remark(f"{micro_name} = {total_name} {total} / ({steps} x {gpus} GPUs) = {micro}")
    return micro, steps


def _divided(total: int, by: int, words: str, batch: Batch, draft: Draft) -> int:
    if total % by:
        raise _rest(total, by, words, batch, draft)
    return total // by


def _rest(total: int, by: int, words: str, batch: Batch, draft: Draft) -> SpecError:
    below, above = total // by * by, -(-total // by) * by
    wanted = f"{below} or {above}" if below else f"{above}"
    return draft.fault(
        f"{batch.names[0]} = {total} is not a multiple of {words} = {by}: use {wanted}, or change "
        "the others."
    )
