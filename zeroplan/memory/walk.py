"""A running sum of bytes over the events of a step."""

from dataclasses import dataclass, field
from typing import get_args

from zeroplan.schedule.events import Event, Item, Phase, Repeat, Script
from zeroplan.units import Size
from zeroplan.workload.liveness import Category, Change

__all__ = ["Peak", "peaks"]

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


@dataclass(frozen=True, slots=True)
class _Summary:
    """A run of changes seen from its start: where it ends, how high it goes, of what."""

    net: dict[Category, Size]
    net_bytes: Size
    high_bytes: Size
    at_high: dict[Category, Size]


@dataclass(slots=True)
class _Walk:
    """What is live, and the highest moment of each phase so far."""

    live: dict[Category, Size]
    total: Size
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
        before, total = dict(self.live), self.total
        self.run(repeat.items, shift)
        between = repeat.times - 2
        for category in CATEGORIES:
            self.live[category] += between * (self.live[category] - before[category])
        self.total += between * (self.total - total)
        self.run(repeat.items, shift + (repeat.times - 1) * repeat.stride)

    def _pass(self, event: Event, shift: int) -> None:
        best = self.found.get(event.phase)
        if best is None:
            best = self._record(event.phase, self.total, dict(self.live), None, None)
        if not event.changes:
            return
        summary = self.summaries.get(id(event.changes))
        if summary is None:
            summary = self.summaries[id(event.changes)] = _summarise(event.changes)
        if self.total + summary.high_bytes > best.bytes:
            at_peak = {c: self.live[c] + summary.at_high.get(c, 0) for c in CATEGORIES}
            block = None if event.block is None else event.block + shift
            self._record(event.phase, self.total + summary.high_bytes, at_peak, event, block)
        for category, size in summary.net.items():
            self.live[category] += size
        self.total += summary.net_bytes

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
    live: dict[Category, Size] = dict.fromkeys(CATEGORIES, 0)
    for change in script.resident:
        live[change.category] += change.bytes
    walk = _Walk(live, sum(live.values()))
    walk.run(script.items)
    return walk.found


def _summarise(changes: tuple[Change, ...]) -> _Summary:
    net: dict[Category, Size] = {}
    total, high = 0, 0
    at_high: dict[Category, Size] = {}
    for change in changes:
        net[change.category] = net.get(change.category, 0) + change.bytes
        total += change.bytes
        if total > high:
            high, at_high = total, dict(net)
    return _Summary(net=net, net_bytes=total, high_bytes=high, at_high=at_high)
