"""The peaks of many plans at once: the same running sum, of arrays.

Which moment is the highest differs from plan to plan, so that only its height is told.
"""

from collections.abc import Mapping
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
class _Sum:
    """Live bytes, and the most so far. [B]"""

    live: Array = 0
    highest: Array = 0

    def add(self, net: Array, high: Array) -> None:
        """Add changes of which the net and the highest prefix are known."""
        self.highest = np.maximum(self.highest, self.live + high)
        self.live = self.live + net


@dataclass(slots=True)
class _Walk:
    pool_of: Mapping[Category, Pool]
    total: _Sum
    pools: dict[Pool, _Sum]
    phases: dict[Phase, Array] = field(default_factory=dict)
    summaries: dict[int, dict[Pool | None, _Sum]] = field(default_factory=dict)
    """By identity of the changes, pool by pool, and of all pools together."""

    def run(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, Event):
                self._pass(item)
            else:
                self._repeat(item)

    def _repeat(self, repeat: Repeat) -> None:
        """Every copy rises or falls by the same: the first or the last one is the highest."""
        sums = [self.total, *self.pools.values()]
        before = [each.live for each in sums]
        self.run(repeat.items)
        for each, live in zip(sums, before, strict=True):
            each.live = each.live + (repeat.times - 2) * (each.live - live)
        self.run(repeat.items)

    def _pass(self, event: Event) -> None:
        highest: Array = self.phases.get(event.phase, self.total.live)
        if event.changes:
            if id(event.changes) not in self.summaries:
                self.summaries[id(event.changes)] = _summarise(event.changes, self.pool_of)
            for pool, each in self.summaries[id(event.changes)].items():
                if pool is None:
                    highest = np.maximum(highest, self.total.live + each.highest)
                (self.total if pool is None else self.pools[pool]).add(each.live, each.highest)
        self.phases[event.phase] = highest


def heights(script: Script) -> Heights:
    """Walk a script of arrays: `trace` without the moments and what they are made of."""
    pools: dict[Pool, _Sum] = {"compute": _Sum()}
    pools |= {pool: _Sum() for pool in script.pools.values()}
    total = _Sum()
    for change in script.resident:
        for each in (total, pools[script.pools.get(change.category, "compute")]):
            each.add(change.bytes, change.bytes)
    for each in (total, *pools.values()):
        each.highest = each.live
    walk = _Walk(script.pools, total, pools)
    walk.run(script.items)
    highest = {pool: each.highest for pool, each in pools.items()}
    return Heights(phases=walk.phases, pools_bytes=highest)


def _summarise(
    changes: tuple[Change, ...], pool_of: Mapping[Category, Pool]
) -> dict[Pool | None, _Sum]:
    sums: dict[Pool | None, _Sum] = {None: _Sum()}
    for change in changes:
        for pool in (None, pool_of.get(change.category, "compute")):
            sums.setdefault(pool, _Sum()).add(change.bytes, change.bytes)
    return sums
