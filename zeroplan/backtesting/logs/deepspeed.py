"""DeepSpeed's log: its throughput timer, its wall clock, its memory.

`deepspeed/utils/timer.py`: `ThroughputTimer` tells samples per second of all ranks, for whole steps
since its line says `global_step=`, for micro-steps or for steps before; `MemAllocated` is in
GiB, whatever it says. `wall_clock_breakdown` times forward, backward and step of whole steps.
`deepspeed/runtime/utils.py`, `see_memory_usage`: the peak since its last call, in GiB.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from zeroplan.backtesting.logs.reading import NUMBER, STEP, Kind, Log, Measure, Reading, number
from zeroplan.units import GIB

__all__ = ["read_deepspeed"]

AT: Final = re.compile(
    rf"\bglobal_step=({STEP})|\[Rank \d+\] step=({STEP})|\b\d+/({STEP}), (?:RunningAvg)?S"
)
SAMPLES: Final = re.compile(
    rf"\b(?P<name>(?:Curr)?SamplesPerSec)=(?P<value>{NUMBER})", re.IGNORECASE
)
CLOCK: Final = re.compile(r"\btime \(ms\) \| (.*)")
PART: Final = re.compile(rf"(\w+): ({NUMBER})", re.IGNORECASE)
PARTS: Final = (("fwd", "forward"), ("bwd", "backward"), ("step", "step"))
"""Timers of a whole step, by their names now and in early versions; their sum is the step."""
PEAKS: Final[tuple[tuple[re.Pattern[str], Kind], ...]] = (
    (re.compile(rf"\bMaxMemAllocated=({NUMBER})GB", re.IGNORECASE), "allocated"),
    (re.compile(rf"\bMax_MA ({NUMBER}) GB", re.IGNORECASE), "allocated"),
    (re.compile(rf"\bMax_CA ({NUMBER}) GB", re.IGNORECASE), "reserved"),
)
TIMERS_ONLY: Final = (
    "the wall clock's forward, backward and step: what lies between them, such as loading data, is "
    "not in it"
)


class _Found(NamedTuple):
    """What the lines hold."""

    samples: list[Reading]
    clock: list[Reading]
    memory: list[Reading]
    unread: list[str]


def read_deepspeed(lines: Iterable[tuple[int, str]]) -> Log:
    """Read numbered lines of a log; the throughput timer comes before the wall clock."""
    found = _Found([], [], [], [])
    step, whole_steps, averaged = 0, False, False
    for place, line in lines:
        at = AT.search(line)
        step = int(next(filter(None, at.groups()))) if at else step
        whole_steps |= "global_step=" in line
        averaged |= _read_samples(line, place, step, found)
        _read_clock(line, place, found)
        peaks, now = _peaks(line), step or len(found.clock)
        if peaks and now:  # before the first step it is the engine that is set up
            found.memory.append(Reading(place=f"line {place}", step=now, speed=None, peaks=peaks))
    speeds, measure, remarks = _speeds(found, averaged=averaged)
    return Log(
        trainer="DeepSpeed",
        measure=measure,
        readings=(*speeds, *found.memory),
        unread=tuple(found.unread),
        remarks=remarks,
        micro_steps=bool(found.samples) and not whole_steps,
    )


def _speeds(found: _Found, *, averaged: bool) -> tuple[list[Reading], Measure, tuple[str, ...]]:
    if found.samples:
        told = ("SamplesPerSec is the mean since the third step",) if averaged else ()
        return found.samples, "samples_per_second", told
    return found.clock, "step_seconds", (TIMERS_ONLY,) if found.clock else ()


def _read_samples(line: str, place: int, step: int, found: _Found) -> bool:
    """Read a line of the throughput timer; return whether it tells a running mean only."""
    told = {each["name"]: each["value"] for each in SAMPLES.finditer(line)}
    if not told:
        return False
    name = "CurrSamplesPerSec" if "CurrSamplesPerSec" in told else "SamplesPerSec"
    speed = number(told[name])
    if speed is None:
        found.unread.append(f"line {place}: {name}={told[name]}")
    else:
        found.samples.append(Reading(place=f"line {place}", step=step, speed=speed, peaks={}))
    return name == "SamplesPerSec"


def _read_clock(line: str, place: int, found: _Found) -> None:
    """Read a line of timers, if it is of a whole step."""
    clock = CLOCK.search(line)
    if clock is None:
        return
    told = {name: number(value) for name, value in PART.findall(clock[1])}
    parts = [told.get(now) or told.get(before) for now, before in PARTS]
    known = [part for part in parts if part is not None]
    if len(known) == len(PARTS):
        step = len(found.clock) + 1
        found.clock.append(
            Reading(place=f"line {place}", step=step, speed=sum(known) / 1000, peaks={})
        )


def _peaks(line: str) -> Mapping[Kind, float]:
    peaks: dict[Kind, float] = {}
    for pattern, kind in PEAKS:
        match = pattern.search(line)
        gib = number(match[1]) if match else None
        if gib is not None:
            peaks[kind] = gib * GIB
    return peaks
