"""What lives at the peak, and the moments that come next: a plain walk, event by event."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from zeroplan.estimation.answer import moment_name
from zeroplan.estimation.explain_record import Buffer, Moment
from zeroplan.memory.walk import CATEGORIES, Peak
from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Event, Item, Phase, Script
from zeroplan.workload.changes import Category, Change

__all__ = [
    "Live",
    "Storage",
    "buffers_at_peak",
    "highest",
    "highest_bytes",
    "moment",
    "next_moments",
]

QUEUES: Final = ("all_gather_buffers", "reduce_scatter_buffers")
"""Where the oldest storage goes first; elsewhere the newest does, as backward undoes forward."""

PROMINENCE: Final = 0.01
"""Share of the peak by which memory must fall on both sides of a moment worth naming."""


def highest(phases: dict[Phase, Peak]) -> tuple[Phase, Peak]:
    """Return the highest of the phases' peaks, the first of equals."""
    return max(phases.items(), key=lambda found: found[1].bytes)


def next_moments(script: Script, peak: Peak, number: int = 3) -> tuple[Moment, ...]:
    """Return the highest moments of other phases or kinds of event than the peak's, highest first."""
    found = [
        moment(phase, each, peak.bytes) for phase, each in _summits(script, PROMINENCE * peak.bytes)
    ]
    kinds = {(peak.event.phase, peak.event.name)} if peak.event else set()
    distinct = []
    for each in sorted(found, key=lambda each: each.below_peak_bytes):
        if (each.phase, each.event) not in kinds:
            kinds.add((each.phase, each.event))
            distinct.append(each)
    return tuple(distinct[:number])


def buffers_at_peak(script: Script, phase: Phase, peak: Peak) -> tuple[Buffer, ...]:
    """Walk up to the change that reaches the peak and return everything live by then."""
    live = _live_at(script, phase, peak.bytes)
    order = {category: place for place, category in enumerate(CATEGORIES)}
    buffers = sorted(live.buffers(), key=lambda buffer: (order[buffer.category], -buffer.bytes))
    return tuple(buffers)


def moment(phase: Phase, found: Peak, peak_bytes: int) -> Moment:
    """Name a moment and say how far below the peak it is."""
    return Moment(
        name=moment_name(found),
        phase=phase,
        event="" if found.event is None else found.event.name,
        block=found.block,
        tensor_bytes=found.bytes,
        below_peak_bytes=peak_bytes - found.bytes,
    )


def highest_bytes(script: Script, category: Category) -> int:
    """Return the highest that the live bytes of one category reach. [B]"""
    total = high = sum(c.bytes for c in script.resident if c.category == category)
    for event, _ in _unrolled(script.items):
        for change in event.changes:
            if change.category == category:
                total += change.bytes
                high = max(high, total)
    return int(high)


def _unrolled(items: tuple[Item, ...], shift: int = 0) -> Iterator[tuple[Event, int | None]]:
    """Yield every event with its block; micro-steps that end as they began are told once."""
    for item in items:
        if isinstance(item, Event):
            yield item, None if item.block is None else item.block + shift
            continue
        copies = item.times if item.stride or any(_net(item.items).values()) else 1
        for copy in range(copies):
            yield from _unrolled(item.items, shift + copy * item.stride)


def _net(items: tuple[Item, ...]) -> Counter[str]:
    net: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Event):
            for change in item.changes:
                net[change.category] += change.bytes
        else:
            for category, size in _net(item.items).items():
                net[category] += size * item.times
    return net


def _summits(script: Script, prominence_bytes: float) -> Iterator[tuple[Phase, Peak]]:
    """Yield the moments that stand out by so much from the valleys on both sides."""
    total = valley = sum(change.bytes for change in script.resident)
    top: tuple[Phase, Peak] | None = None
    for event, block in _unrolled(script.items):
        for change in event.changes:
            total += change.bytes
            if total > (valley if top is None else top[1].bytes):
                top = event.phase, Peak(bytes=total, event=event, block=block, breakdown={})
            elif top is None:
                valley = total
            elif total < top[1].bytes - prominence_bytes:
                if top[1].bytes >= valley + prominence_bytes:
                    yield top
                top, valley = None, total
    if top is not None:
        yield top


@dataclass(slots=True)
class Storage:
    """A piece of memory."""

    serial: int
    bytes: int
    block: int | None


@dataclass(slots=True)
class Live:
    """Live storages by category and owner, oldest first."""

    stacks: dict[tuple[Category, str], list[Storage]] = field(default_factory=dict)
    total: int = 0
    serials: Iterator[int] = field(default_factory=count)
    resident: bool = True
    """Whether what comes now lives throughout."""
    summed: set[tuple[Category, str]] = field(default_factory=set)
    """Owners whose storages were told as one sum."""
    seen: Callable[[Storage, int], object] = lambda _storage, _bytes: None
    """Told of every storage that comes, and of what goes of one as a negative number. [B]"""

    def apply(self, change: Change, block: int | None) -> None:
        """Let bytes come or go."""
        key = change.category, change.owner
        self.total += change.bytes
        if change.bytes < 0:
            self._release(key, -change.bytes)
        elif change.bytes:
            storage = Storage(next(self.serials), change.bytes, block)
            self.stacks.setdefault(key, []).append(storage)
            self.seen(storage, change.bytes)
            if self.resident:
                self.summed.add(key)

    def _release(self, key: tuple[Category, str], left: int) -> None:
        while left:
            stack = self.stacks.get(key) or self._other_stack(key, left)
            if stack is None:  # more goes than came: the sum stays right
                self.stacks[key] = [Storage(next(self.serials), -left, None)]
                return
            storage = stack.pop(_place(stack, left, oldest=key[0] in QUEUES))
            gone = min(left, storage.bytes)
            self.seen(storage, -gone)
            if storage.bytes > left:
                stack.append(Storage(storage.serial, storage.bytes - left, storage.block))
            left -= gone

    def _other_stack(self, key: tuple[Category, str], size: int) -> list[Storage] | None:
        """Find who held what goes: a block's input was the output of the block before it."""
        held = [stack for (own, _), stack in self.stacks.items() if own == key[0] and stack]
        alike = [stack for stack in held if stack[-1].bytes == size]
        return max(alike or held, key=lambda stack: stack[-1].serial, default=None)

    def buffers(self) -> Iterator[Buffer]:
        """Yield what is live by category and owner."""
        for (category, owner), stack in self.stacks.items():
            if stack:
                yield Buffer(
                    category=category,
                    owner=owner,
                    blocks=_blocks({s.block for s in stack if s.block is not None}),
                    count=None if (category, owner) in self.summed else len(stack),
                    bytes=sum(s.bytes for s in stack),
                )


def _place(stack: list[Storage], size: int, *, oldest: bool) -> int:
    """Find the storage that goes: one of this size where there is one."""
    places = range(len(stack)) if oldest else range(len(stack) - 1, -1, -1)
    return next((place for place in places if stack[place].bytes == size), places[0])


def _live_at(script: Script, phase: Phase, target_bytes: int) -> Live:
    live = Live()
    for change in script.resident:
        live.apply(change, None)
    live.resident = False
    for event, block in _unrolled(script.items):
        if event.phase == phase and live.total >= target_bytes:
            return live
        for change in event.changes:
            live.apply(change, block)
            if event.phase == phase and live.total >= target_bytes:
                return live
    return live


def _blocks(numbers: set[int]) -> str:
    """Name blocks: 7, 0-78, or 40 of 1-79 where some between are not among them."""
    if not numbers:
        return ""
    first, last = min(numbers), max(numbers)
    if first == last:
        return f"{first}"
    span = f"{first}-{last}"
    return span if len(numbers) == last - first + 1 else f"{len(numbers)} of {span}"
