"""A small model of the CUDA caching allocator: what it holds beyond what is live.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h (PyTorch 2.13): blocks
belong to the stream that asked for them, small and large requests come from segments of their own,
the best fit is taken and split, neighbours are merged when freed, nothing is given back.
"""

from bisect import bisect_left, insort
from itertools import count
from typing import Final

from zeroplan.records import dataclass, field
from zeroplan.units import ALLOCATION_BYTES, MIB, round_up

__all__ = ["Allocator", "Block"]

SMALL_BYTES: Final = MIB
"""Requests up to this come from small segments."""
SMALL_SEGMENT_BYTES: Final = 2 * MIB
MEDIUM_BYTES: Final = 10 * MIB
"""Larger requests get a segment of their own size."""
MEDIUM_SEGMENT_BYTES: Final = 20 * MIB
LARGE_ROUNDING_BYTES: Final = 2 * MIB
LEAST_REMAINDER_BYTES: Final = MIB
"""A large block is split if more than this is left."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment."""

    pool: tuple[str, bool]
    """Stream, and whether it is of the small ones."""
    size: int
    before: "Block | None" = None
    """The piece of the same segment in front of it."""
    after: "Block | None" = None
    free: bool = False
    serial: int = field(default_factory=count().__next__)


@dataclass(slots=True)
class Allocator:
    """What is reserved, and which pieces of it are free."""

    expandable: bool = False
    """Whether segments grow (`expandable_segments:True`): one for each stream and size class."""
    reserved_bytes: int = 0
    free_blocks: dict[tuple[str, bool], list[tuple[int, int]]] = field(default_factory=dict)
    """By pool, (size, serial) in ascending order."""
    by_serial: dict[int, Block] = field(default_factory=dict)
    last: dict[tuple[str, bool], Block] = field(default_factory=dict)
    """The end of each pool's growing segment."""

    def allocate(self, stream: str, size: int) -> Block:
        """Return a block of at least so many bytes."""
        size = int(round_up(max(size, 1)))
        pool = stream, size <= SMALL_BYTES
        block = self._best_fit(pool, size) or self._new_block(pool, size)
        remainder = block.size - size
        if remainder >= ALLOCATION_BYTES if pool[1] else remainder > LEAST_REMAINDER_BYTES:
            self._split(block, size)
        return block

    def release(self, block: Block) -> None:
        """Free a block and merge it with its free neighbours."""
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._take(neighbour)
                self._merge(block, neighbour)
        self._put(block)

    def _best_fit(self, pool: tuple[str, bool], size: int) -> Block | None:
        blocks = self.free_blocks.setdefault(pool, [])
        at = bisect_left(blocks, (size, -1))
        if at == len(blocks):
            return None
        block = self.by_serial[blocks[at][1]]
        self._take(block)
        return block

    def _new_block(self, pool: tuple[str, bool], size: int) -> Block:
        if self.expandable:
            return self._grow(pool, size)
        if pool[1]:
            segment = SMALL_SEGMENT_BYTES
        elif size < MEDIUM_BYTES:
            segment = MEDIUM_SEGMENT_BYTES
        else:
            segment = int(round_up(size, LARGE_ROUNDING_BYTES))
        self.reserved_bytes += segment
        return Block(pool, segment)

    def _grow(self, pool: tuple[str, bool], size: int) -> Block:
        """Map more at the end of the pool's segment; a free end counts towards the request."""
        end = self.last.get(pool)
        there = end.size if end is not None and end.free else 0
        page = SMALL_SEGMENT_BYTES if pool[1] else MEDIUM_SEGMENT_BYTES
        more = int(round_up(size - there, page))
        self.reserved_bytes += more
        if end is not None and end.free:
            self._take(end)
            end.size += more
            return end
        block = Block(pool, more, before=end)
        if end is not None:
            end.after = block
        self.last[pool] = block
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.pool, block.size - size, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        if self.last.get(block.pool) is block:
            self.last[block.pool] = rest
        self._put(rest)

    def _merge(self, block: Block, neighbour: Block) -> None:
        block.size += neighbour.size
        if neighbour is block.before:
            block.before = neighbour.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = neighbour.after
            if block.after is not None:
                block.after.before = block
        if self.last.get(block.pool) is neighbour:
            self.last[block.pool] = block

    def _put(self, block: Block) -> None:
        block.free = True
        self.by_serial[block.serial] = block
        insort(self.free_blocks.setdefault(block.pool, []), (block.size, block.serial))

    def _take(self, block: Block) -> None:
        block.free = False
        blocks = self.free_blocks[block.pool]
        del blocks[bisect_left(blocks, (block.size, block.serial))]
        del self.by_serial[block.serial]
