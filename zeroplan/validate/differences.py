"""Two observations of one step, figure by figure."""

from collections.abc import Iterator
from typing import Final

from zeroplan.validate.record import PHASES, Calls, Difference, Observation

__all__ = ["differences"]

HELD: Final = {
    "parameters": "parameters",
    "optimizer": "optimizer states",
    "inputs_and_buffers": "inputs and buffers",
    "after_forward": "kept by forward",
    "gradients": "kept by backward",
}
"""Field of `Held`: its name for a person."""
CALLS: Final = {"count": "calls", "input_bytes": "input", "output_bytes": "output"}
"""The same for `Calls`."""


def differences(prediction: Observation, truth: Observation) -> tuple[Difference, ...]:
    """Lay every figure that both sides know side by side."""
    return (
        *_peaks(prediction, truth),
        *_held(prediction, truth),
        *_collectives(prediction, truth),
    )


def _peaks(prediction: Observation, truth: Observation) -> Iterator[Difference]:
    for phase in PHASES:
        yield Difference(
            name=f"peak in {phase}",
            predicted=getattr(prediction.peak_by_phase_bytes, phase),
            measured=getattr(truth.peak_by_phase_bytes, phase),
            kind="peak",
        )
    expected, seen = prediction.peak_before_update_bytes, truth.peak_before_update_bytes
    if expected is not None and seen is not None:
        yield Difference(
            name="peak before the first update", predicted=expected, measured=seen, kind="peak"
        )


def _held(prediction: Observation, truth: Observation) -> Iterator[Difference]:
    for field, name in HELD.items():
        yield Difference(
            name=name,
            predicted=getattr(prediction.held_bytes, field),
            measured=getattr(truth.held_bytes, field),
            kind="held",
        )


def _collectives(prediction: Observation, truth: Observation) -> Iterator[Difference]:
    ours, theirs = _by_name(prediction), _by_name(truth)
    for name, phase in dict.fromkeys((*theirs, *ours)):
        expected, seen = ours.get((name, phase)), theirs.get((name, phase))
        for field, words in CALLS.items():
            yield Difference(
                name=f"{name} in {phase}, {words}",
                predicted=getattr(expected, field, 0),
                measured=getattr(seen, field, 0),
                kind="calls" if field == "count" else "message",
            )


def _by_name(step: Observation) -> dict[tuple[str, str], Calls]:
    return {(each.name, each.phase): each for each in step.collectives}
