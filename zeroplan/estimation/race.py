"""Which of many plans need a clock: the fastest of a race is found without running them all.

A step takes no less than its kernels, nor than what a communicator sends, one collective after the
other. These sums are cheap, and mostly near the truth: a plan whose sum is longer than another
plan's whole step has lost.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from zeroplan.records import fields
from zeroplan.schedule.events import Script
from zeroplan.timing.many import timings, totals
from zeroplan.timing.many_parts import Part, halves, shape_of
from zeroplan.timing.many_prices import Array, ManyPrices
from zeroplan.timing.walk import Timing

__all__ = ["Runners", "race", "time_all"]

AT_ONCE: Final = 16384
"""Plans whose clocks run together: their arrays stay in a processor's cache. [count]"""

FAVOURITE: Final = 0.8
"""Plans run first that may be so fast, as a share of what the most promising one may be. [1]"""

ROUNDING: Final = 1e-9
"""By how much a sum may be longer than the step that it is a part of. [1]"""


class Runners:
    """Plans of a script and what is known of their times, over [A, batches x machines].

    A column, the plans that differ in their number of micro-steps alone, is timed together.
    """

    def __init__(self, script: Script, prices: ManyPrices, more: Array, *, overlaps: bool) -> None:
        self.script, self.prices, self.more, self.overlaps = script, prices, more, overlaps
        self.found = {entry.name: np.full(more.shape, np.nan) for entry in fields(Timing)}

    @cached_property
    def kinds(self) -> dict[str, Array]:
        """Seconds of each kind. [s]"""
        found = totals(self.script, self.prices, self.more)
        return {name: np.broadcast_to(value, self.more.shape) for name, value in found.items()}

    @property
    def machines(self) -> int:
        """How many machines each batch meets. [count]"""
        return len(self.prices.machines)

    @property
    def walk(self) -> tuple[Any, ...]:
        """What plans have in common that share a walk, at least as far as their micro-steps go."""
        return self.overlaps, len(self.more), shape_of(halves(self.script)[0])

    @property
    def least_seconds(self) -> Array:
        """A step takes no less. [s]"""
        sent, kernels = self.kinds["communication_seconds"], self.kinds["kernels_seconds"]
        if not self.overlaps:
            return sent + kernels
        calls = (event.collective for event, _ in self.script.calls())
        lines = {call.group.name for call in calls if call is not None}
        return np.maximum(sent / max(1, len(lines)), kernels)

    def timing(self, shape: tuple[int, ...]) -> Timing:
        """Return what was found, nan for plans that were not timed. [s]"""
        return Timing(**{name: values.reshape(shape) for name, values in self.found.items()})


def time_all(several: Sequence[Runners]) -> None:
    """Time every plan."""
    for alike in _alike(several, lambda each: each.walk):
        _time(alike, [np.arange(each.more.shape[1]) for each in alike])


def race(
    several: Sequence[Runners], tokens: Sequence[Array], tracks: Sequence[list[Array]]
) -> None:
    """Time the fastest plan of each track and machine, and those that might have been as fast.

    Parameters
    ----------
    several
        Plans of several scripts.
    tokens
        What a step of each takes in, over [A, batches, machines].
    tracks
        Of each the masks of plans that race against each other.

    """
    each = zip(several, tokens, tracks, strict=True)
    courses = [_Course(*these) for these in each if any(track.any() for track in these[-1])]
    for alike in _alike(courses, lambda course: course.runners.walk):
        runners = [course.runners for course in alike]
        _time(runners, [course.first() for course in alike])
        _time(runners, [course.further() for course in alike])


class _Course:
    """The races of the plans of one script, over [plans of a machine, machines]."""

    def __init__(self, runners: Runners, tokens: Array, tracks: list[Array]) -> None:
        self.runners = runners
        self.shape = (-1, runners.machines)
        self.tokens = tokens.reshape(self.shape)
        self.tracks = [track.reshape(self.shape) for track in tracks]
        self.at_most = self.tokens / runners.least_seconds.reshape(self.shape)

    def first(self) -> Array:
        """Return the columns of plans that may be the fastest, or nearly so."""
        hopes = (np.where(track, self.at_most, -np.inf) for track in self.tracks)
        return self._chosen(each >= FAVOURITE * each.max(axis=0) for each in hopes)

    def further(self) -> Array:
        """Return those that may still be faster than the fastest that were timed."""
        speed = self.tokens / self.runners.found["step_seconds"].reshape(self.shape)
        timed = ~np.isnan(speed)
        best = (np.where(track & timed, speed, -np.inf).max(axis=0) for track in self.tracks)
        return self._chosen(~timed & (self.at_most >= (1 - ROUNDING) * each) for each in best)

    def _chosen(self, hopes: Iterable[Array]) -> Array:
        pairs = zip(self.tracks, hopes, strict=True)
        chosen = np.logical_or.reduce([track & hope for track, hope in pairs])
        return np.flatnonzero(chosen.reshape(self.runners.more.shape).any(axis=0))


def _alike(several: Iterable[Any], walk: Callable[[Any], object]) -> list[list[Any]]:
    found: defaultdict[object, list[Any]] = defaultdict(list)
    for each in several:
        found[walk(each)].append(each)
    return list(found.values())


def _time(several: Sequence[Runners], chosen: Sequence[Array]) -> None:
    """Time some columns of scripts of one shape, as many at once as a cache holds."""
    lot: list[tuple[Runners, Array]] = []
    size = 0
    for runners, columns in zip(several, chosen, strict=True):
        for some in np.array_split(columns, 1 + len(columns) // AT_ONCE):
            if size + len(some) > AT_ONCE:
                _time_at_once(lot)
                lot, size = [], 0
            if len(some):
                lot.append((runners, some))
                size += len(some)
    if lot:
        _time_at_once(lot)


def _time_at_once(lot: Sequence[tuple[Runners, Array]]) -> None:
    def joined(values: list[Array]) -> Array:
        pairs = zip(values, lot, strict=True)
        return np.concatenate([each[:, columns] for each, (_, columns) in pairs], axis=1)

    first, _ = lot[0]
    more = joined([each.more for each, _ in lot])
    timing = timings(
        [Part(each.script, each.prices, columns) for each, columns in lot],
        {name: joined([each.kinds[name] for each, _ in lot]) for name in first.kinds},
        more=more if more.any() else 0,
        overlaps=first.overlaps,
    )
    ends = np.cumsum([len(columns) for _, columns in lot])
    for entry in fields(Timing):
        values = np.broadcast_to(getattr(timing, entry.name), more.shape)
        for (each, columns), some in zip(lot, np.split(values, ends[:-1], axis=1), strict=True):
            each.found[entry.name][:, columns] = some
