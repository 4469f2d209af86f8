"""A running sum of bytes over the events of a step."""

from collections.abc import Mapping
from typing import get_args

from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Event, Item, Phase, Pool, Repeat, Script
from zeroplan.schedule.optimizer import OPTIMIZER_STATES
from zeroplan.units import Size
from zeroplan.workload.changes import Category, Change

__all__ = ["Peak", "Trace", "peak_before_update", "peaks", "trace"]

CATEGORIES: tuple[Category, ...] = get_args(Category)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest moment of a phase."""

    bytes: Size
    event: Event | None
    """The event in which it falls; None where nothing rises above what is resident."""
    block: int | None
    """Number of the block to which that event belongs."""
    breakdown: dict[Category, Size]
    """What is live at that moment; sums to `bytes`. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a walk finds."""

    phases: dict[Phase, Peak]
    pools_bytes: dict[Pool, Size]
    """The highest that the blocks of each stream reach: the allocator keeps those of one stream
    from the others (`DeviceCachingAllocator`, 2.13). [B]"""

    @property
    def highest(self) -> Peak:
        """The highest moment of all."""
        return max(self.phases.values(), key=lambda peak: peak.bytes)


@dataclass(frozen=True, slots=True)
class _Summary:
    """A run of changes seen from its start: where it ends, how high it goes, of what."""

    net: dict[Category, Size]
    net_bytes: Size
    high_bytes: Size
    at_high: dict[Category, Size]
    pools: dict[Pool, tuple[Size, Size]]
    """Net and highest bytes of each pool. [B]"""


@dataclass(slots=True)
class _Walk:
    """What is live, and the highest moment of each phase so far."""

    pool_of: Mapping[Category, Pool]
    live: dict[Category, Size]
    total: Size
    pools: dict[Pool, tuple[Size, Size]]
    """Live bytes of each pool, and the highest so far. [B]"""
    found: dict[Phase, Peak] = field(default_factory=dict)
    summaries: dict[int, _Summary] = field(default_factory=dict)
    """By identity of the changes: events of equal blocks share them."""

    def run(self, items: tuple[Item, ...], shift: int = 0) -> None:
        for item in items:
            if isinstance(item, Event):
                self._pass(item, shift)
            else:
                self._repeat(item, shift)

    def _repeat(self, repeat: Repeat, shift: int) -> None:
        """Every copy rises or falls by the same: the first or the last one is the highest."""
        before, total, pools = dict(self.live), self.total, dict(self.pools)
        self.run(repeat.items, shift)
        between = repeat.times - 2
        for category in CATEGORIES:
            self.live[category] += between * (self.live[category] - before[category])
        self.total += between * (self.total - total)
        for pool, (live, highest) in self.pools.items():
            self.pools[pool] = live + between * (live - pools[pool][0]), highest
        self.run(repeat.items, shift + (repeat.times - 1) * repeat.stride)

    def _pass(self, event: Event, shift: int) -> None:
        best = self.found.get(event.phase)
        if best is None:
            best = self._record(event.phase, self.total, dict(self.live), None, None)
        changes = event.changes
        if not changes:
            return
        summary = self.summaries.get(id(changes))
        if summary is None:
            summary = self.summaries[id(changes)] = _summarise(changes, self.pool_of)
        if self.total + summary.high_bytes > best.bytes:
            at_peak = {c: self.live[c] + summary.at_high.get(c, 0) for c in CATEGORIES}
            block = None if event.block is None else event.block + shift
            self._record(event.phase, self.total + summary.high_bytes, at_peak, event, block)
        for category, size in summary.net.items():
            self.live[category] += size
        self.total += summary.net_bytes
        for pool, (net, high) in summary.pools.items():
            live, highest = self.pools[pool]
            self.pools[pool] = live + net, max(highest, live + high)

    def _record(
        self,
        phase: Phase,
        size: Size,
        breakdown: dict[Category, Size],
        event: Event | None,
        block: int | None,
    ) -> Peak:
        peak = Peak(bytes=size, event=event, block=block, breakdown=breakdown)
        self.found[phase] = peak
        return peak


def peaks(script: Script) -> dict[Phase, Peak]:
    """Walk a script and return each phase's peak."""
    return trace(script).phases


def trace(script: Script) -> Trace:
    """Walk a script and return each phase's peak and each pool's highest moment."""
    live: dict[Category, Size] = dict.fromkeys(CATEGORIES, 0)
    for change in script.resident:
        live[change.category] += change.bytes
    pools: dict[Pool, tuple[Size, Size]] = {}
    for category in CATEGORIES:
        pool = script.pools.get(category, "compute")
        size = pools.get(pool, (0, 0))[0] + live[category]
        pools[pool] = size, size
    walk = _Walk(script.pools, live, sum(live.values()), pools)
    walk.run(script.items)
    highest = {pool: high for pool, (_, high) in walk.pools.items()}
    return Trace(phases=walk.found, pools_bytes=highest)


def peak_before_update(script: Script, found: Mapping[Phase, Peak]) -> Size:
    """Return the highest moment before the first update, which makes the optimizer states. [B]"""
    states = sum(c.bytes for c in script.resident if c.owner == OPTIMIZER_STATES)
    return max(found["forward"].bytes, found["backward"].bytes) - states


def _summarise(changes: tuple[Change, ...], pool_of: Mapping[Category, Pool]) -> _Summary:
    net: dict[Category, Size] = {}
    total, high = 0, 0
    at_high: dict[Category, Size] = {}
    pools: dict[Pool, tuple[Size, Size]] = {}
    for change in changes:
        category, size = change.category, change.bytes
        net[category] = net.get(category, 0) + size
        total += size
        if total > high:
            high, at_high = total, dict(net)
        pool = pool_of.get(category, "compute")
        live, highest = pools.get(pool, (0, 0))
        live += size
        pools[pool] = live, max(highest, live)
    return _Summary(net, total, high, at_high, pools)
