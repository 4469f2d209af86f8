"""The peaks of many plans at once: the same running sum, of arrays.

Which moment is the highest differs from plan to plan, so that only its height is told.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Event, Item, Phase, Pool, Repeat, Script
from zeroplan.workload.changes import Category, Change

__all__ = ["Heights", "heights"]

Array = Any
"""A numpy array, or a number that stands for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heights:
    """How high plans go. [B]"""

    phases: dict[Phase, Array]
    pools_bytes: dict[Pool, Array]
    """The highest that the blocks of each stream reach."""


@dataclass(slots=True)
class _Rises:
    """By how much some changes raise the live bytes, and then others. [B]"""

    net: list[Array] = field(default_factory=list)
    """What is left of it."""
    most: list[Array] = field(default_factory=list)

    def add(self, changes: Iterable[Change]) -> None:
        live: Array = 0
        most: Array = 0
        for change in changes:
            live = live + change.bytes
            most = np.maximum(most, live)
        self.net.append(live)
        self.most.append(most)

    def tops(self, live: Array, order: list[int]) -> Array:
        """Return the highest that each reaches where they come in an order. [changes, plans]"""
        net, most = (_table(each)[order] for each in (self.net, self.most))
        return live + np.cumsum(net, axis=0) - net + most


@dataclass(slots=True)
class _Course:
    """The changes of a script in order, of all pools together and pool by pool."""

    pool_of: Mapping[Category, Pool]
    rises: dict[Pool | None, _Rises]
    more: Array = 0
    """Micro-steps beyond those that the script tells. [count]"""
    left_bytes: Array = 0
    """What a micro-step leaves behind for those that follow."""
    order: list[int] = field(default_factory=list)
    """Places among the rises."""
    phases: list[Phase] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Of changes, by their identity."""

    def run(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, Event):
                self.order.append(self._place(item.changes))
                self.phases.append(item.phase)
            else:
                self._repeat(item)

    def _repeat(self, repeat: Repeat) -> None:
        """Write the first copy, what those between change, and the last one.

        Every copy rises or falls by the same, so that one of these two is the highest.
        """
        begins = len(self.order)
        self.run(repeat.items)
        copy, phases = self.order[begins:], self.phases[begins:]
        between = len(self.rises[None].net)
        for rises in self.rises.values():
            once = sum(times * rises.net[place] for place, times in Counter(copy).items())
            rises.net.append((repeat.times + self.more * repeat.micro_steps - 2) * once)
            rises.most.append(0)
            if repeat.micro_steps and rises is self.rises[None]:
                self.left_bytes = once
        self.order += [between, *copy]
        self.phases += [phases[-1], *phases]

    def _place(self, changes: tuple[Change, ...]) -> int:
        known = self.places.get(id(changes))
        if known is None:
            known = self.places[id(changes)] = len(self.rises[None].net)
            for pool, rises in self.rises.items():
                rises.add(self._of(pool, changes))
        return known

    def tops(self, pool: Pool | None, resident: tuple[Change, ...]) -> Array:
        """Return the highest after each change, above what lives throughout. [changes, plans]"""
        live = sum(change.bytes for change in self._of(pool, resident))
        return self.rises[pool].tops(live, self.order)

    def _of(self, pool: Pool | None, changes: tuple[Change, ...]) -> Iterable[Change]:
        if pool is None:
            return changes
        return (each for each in changes if self.pool_of.get(each.category, "compute") == pool)


def heights(script: Script, more: Array = 0) -> Heights:
    """Walk a script of arrays: `trace` without the moments and what they are made of.

    Parameters
    ----------
    script
        The step.
    more
        Micro-steps beyond those that it tells, over [A, plans], or 0 for none. Only where they
        leave bytes behind have heights an axis for them.

    """
    found, left_bytes = _heights(script, 0)
    if not (np.any(left_bytes) and np.ndim(more)):
        return found
    rows = [_heights(script, row)[0] for row in more]
    return Heights(
        phases={phase: np.stack([row.phases[phase] for row in rows]) for phase in found.phases},
        pools_bytes={
            pool: np.stack([row.pools_bytes[pool] for row in rows]) for pool in found.pools_bytes
        },
    )


def _heights(script: Script, more: Array) -> tuple[Heights, Array]:
    """Return heights, and what a micro-step leaves behind. [B]"""
    others = tuple(dict.fromkeys(script.pools.values()))
    pools: tuple[Pool, ...] = ("compute", *others) if others else ()
    rises: dict[Pool | None, _Rises] = {None: _Rises(), **{pool: _Rises() for pool in pools}}
    course = _Course(script.pools, rises, more)
    course.run(script.items)
    tops = course.tops(None, script.resident)
    phases = {
        phase: tops[[each == phase for each in course.phases]].max(axis=0)
        for phase in dict.fromkeys(course.phases)
    }
    of_pool = {pool: course.tops(pool, script.resident).max(axis=0) for pool in pools}
    found = Heights(phases=phases, pools_bytes=of_pool or {"compute": tops.max(axis=0)})
    return found, course.left_bytes


def _table(values: list[Array]) -> Array:
    """Put bytes, whole numbers or arrays over plans, under one another. [figures, plans]"""
    table = np.empty((len(values), max(map(np.size, values))), np.int64)
    for row, value in enumerate(values):
        table[row] = value
    return table
