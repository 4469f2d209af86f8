"""Reserved memory: the events of a step replayed into the allocator's model."""

from collections import defaultdict
from collections.abc import Iterable

from zeroplan.memory.allocator import Allocator, Block
from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Script
from zeroplan.workload.changes import Category, Change

__all__ = ["replayed_reserved_bytes"]

STEPS = 2
"""The first step finds the allocator empty; from the second on it repeats."""


def replayed_reserved_bytes(script: Script, *, expandable: bool = False) -> int:
    """Replay steps into the allocator and return what it holds then. [B]

    Slower than `trace`, which sums up what each stream's pool reaches: every block is told.
    """
    replay = _Replay(script, Allocator(expandable=expandable))
    replay.apply(script.resident)
    for _ in range(STEPS):
        for event, _ in script.unrolled():
            replay.apply(event.changes)
    return replay.allocator.reserved_bytes


@dataclass(slots=True)
class _Replay:
    script: Script
    allocator: Allocator
    live: defaultdict[Category, list[tuple[int, Block]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Blocks of each category with the bytes asked for, oldest first."""

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.bytes > 0:
                stream = self.script.pools.get(change.category, "compute")
                block = self.allocator.allocate(stream, int(change.bytes))
                self.live[change.category].append((int(change.bytes), block))
            elif change.bytes < 0:
                self._release(change.category, int(-change.bytes))

    def _release(self, category: Category, size: int) -> None:
        """Free the newest block of that size, or as many of the newest as make it up."""
        blocks = self.live[category]
        for place in range(len(blocks) - 1, -1, -1):
            if blocks[place][0] == size:
                self.allocator.release(blocks.pop(place)[1])
                return
        while size > 0 and blocks:
            asked, block = blocks.pop()
            if asked > size:
                blocks.append((asked - size, block))
                return
            self.allocator.release(block)
            size -= asked
