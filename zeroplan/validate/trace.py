"""What a GPU did in one step, read from the trace that torch.profiler exports.

A kernel of NCCL carries the collective's name, dtype, elements and group (kineto's metadata of
`record_param_comms`; torch/profiler/_trace_validator.py, 2.13, lists the keys).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zeroplan.records import dataclass
from zeroplan.units import MICRO
from zeroplan.validate.measurement import BusTime, spread

__all__ = ["StepTrace", "bus_times", "read_trace"]

"""Times in a trace are microseconds."""

ON_STREAMS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of events that keep a stream busy."""

NAMES: Final = (
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("broadcast", "broadcast"),
    ("alltoall", "all_to_all"),
    ("reduce", "reduce"),
)
"""What occurs in the name that c10d gives a collective, and its name here; the first that fits."""

ITEMSIZES: Final = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "BFloat16": 2, "Half": 2}
"""By dtype as the trace names it; one byte otherwise. [B]"""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Call:
    """A collective of one size."""

    name: str
    ranks: int
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """One step. [s]"""

    communication_seconds: float
    """All collectives, one after the other."""
    exposed_seconds: float
    """While one runs and the compute stream does nothing."""
    calls: tuple[tuple[Call, float], ...]
    """Every collective and how long it took."""


def read_trace(document: Mapping[str, Any]) -> StepTrace | None:
    """Return what a step showed; None where the profiler saw no stream at all."""
    busy: dict[object, list[Interval]] = defaultdict(list)
    running, calls = list[Interval](), list[tuple[Call, float]]()
    for event in document.get("traceEvents", ()):
        if event.get("cat") not in ON_STREAMS or "dur" not in event:
            continue
        start = float(event["ts"]) * MICRO
        interval = (start, start + float(event["dur"]) * MICRO)
        facts = event.get("args", {})
        if "Collective name" in facts:
            running.append(interval)
            calls.append((_call(facts), interval[1] - interval[0]))
        else:
            busy[facts.get("stream")].append(interval)
    if not (busy or running):
        return None
    compute = max(busy.values(), key=_length, default=[])
    return StepTrace(
        communication_seconds=sum(seconds for _, seconds in calls),
        exposed_seconds=_length(_less(_merged(running), _merged(compute))),
        calls=tuple(calls),
    )


def bus_times(steps: Sequence[StepTrace]) -> tuple[BusTime, ...]:
    """Return the collectives of traced steps by name and size, in the order of their first call."""
    times: dict[Call, list[float]] = defaultdict(list)
    for step in steps:
        for call, seconds in step.calls:
            times[call].append(seconds)
    return tuple(
        BusTime(
            name=call.name,
            ranks=call.ranks,
            count=round(len(seconds) / len(steps)),
            input_bytes=call.input_bytes,
            output_bytes=call.output_bytes,
            seconds=spread(seconds),
        )
        for call, seconds in times.items()
    )


def _call(facts: Mapping[str, Any]) -> Call:
    told = str(facts["Collective name"]).replace("_", "").lower()
    size = ITEMSIZES.get(str(facts.get("dtype")), 1)
    return Call(
        name=next((name for part, name in NAMES if part in told), told),
        ranks=int(facts.get("Group size", 0)),
        input_bytes=int(facts.get("In msg nelems", 0)) * size,
        output_bytes=int(facts.get("Out msg nelems", 0)) * size,
    )


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return intervals in order, those that touch made one."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _less(whole: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """Return what of the first intervals the second leave; both in order and apart."""
    left: list[Interval] = []
    for start, end in whole:
        for taken_start, taken_end in taken:
            if taken_end <= start or taken_start >= end:
                continue
            if taken_start > start:
                left.append((start, taken_start))
            start = max(start, taken_end)  # noqa: PLW2901  # what is left of it
        if start < end:
            left.append((start, end))
    return left


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
