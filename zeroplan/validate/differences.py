"""Two observations of one step, figure by figure."""

from collections.abc import Iterator
from typing import Final

from zeroplan.estimation.record import Time
from zeroplan.memory.device import FRAGMENTATION, DeviceMemory
from zeroplan.validate.measurement import Measured
from zeroplan.validate.record import PHASES, Calls, Observation
from zeroplan.validate.validation import Difference

__all__ = ["beyond_tensors", "differences", "times"]

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


def beyond_tensors(
    device: DeviceMemory, measured: Measured, *, alone: bool
) -> Iterator[Difference]:
    """Lay what a GPU's allocator and driver show beside the prediction.

    `alone` leaves the driver's out: pretended ranks have no communicators, whose memory is predicted.
    """
    seen = measured.memory
    if seen.peak_allocated_bytes is not None:
        yield Difference(
            name="peak allocated",
            predicted=device.allocated_bytes,
            measured=seen.peak_allocated_bytes.median,
            kind="peak",
        )
    if seen.reserved_bytes is not None:
        slack = FRAGMENTATION.value / (1 + FRAGMENTATION.value) * device.reserved_bytes
        half = slack * FRAGMENTATION.rel_uncertainty
        yield Difference(
            name="reserved",
            predicted=device.reserved_bytes,
            measured=seen.reserved_bytes.median,
            kind="memory",
            low=device.reserved_bytes - half,
            high=device.reserved_bytes + half,
        )
    if seen.device_bytes is not None and not alone:
        yield Difference(
            name="device",
            predicted=device.device_bytes,
            measured=seen.device_bytes.median,
            kind="memory",
            low=device.device_bytes - device.half_band_bytes,
            high=device.device_bytes + device.half_band_bytes,
        )


def times(expected: Time, measured: Measured, *, alone: bool) -> Iterator[Difference]:
    """Lay times side by side; `alone`, a rank does not wait for others.

    The band of a step is told for what it computes too, since it is mostly that.
    """
    seen, step = measured.time, expected.step_seconds
    low, high = expected.low_seconds, expected.high_seconds
    if step is None or low is None or high is None:
        return
    computing = step - (expected.exposed_communication_seconds or 0.0)
    rows = (
        ("step", None if alone else step, seen.step_seconds),
        ("compute", computing, seen.compute_seconds),
        ("optimizer", expected.optimizer_seconds, seen.optimizer_seconds),
        ("communication", expected.communication_seconds, seen.communication_seconds),
        (
            "exposed communication",
            expected.exposed_communication_seconds,
            seen.exposed_communication_seconds,
        ),
    )
    for name, seconds, spread in rows:
        if seconds is None or spread is None:
            continue
        banded = name in ("step", "compute")
        yield Difference(
            name=name,
            predicted=seconds,
            measured=spread.median,
            kind="seconds",
            low=seconds * low / step if banded else None,
            high=seconds * high / step if banded else None,
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
