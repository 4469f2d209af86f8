"""Runs of equal blocks, told once: what lets 126 blocks cost what 4 do."""

from collections.abc import Iterator, Sequence
from typing import Final

from zeroplan.records import dataclass

__all__ = ["Stretch", "micro_steps", "periods", "stretches"]

LONGEST_PERIOD: Final = 8
"""Blocks after which a pattern (every-k checkpointing, one full layer in six) starts anew."""

FEWEST_PERIODS: Final = 4
"""A first one, a last one and two between; fewer are written out."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring units that happen `times` times over; `units` are the first copy's."""

    units: tuple[int, ...]
    times: int


def stretches(keys: Sequence[object]) -> list[Stretch]:
    """Find periods among units described by keys.

    The first and the last period of a run stand apart: what comes before and after them differs.
    """
    found: list[Stretch] = []
    start = 0
    while start < len(keys):
        period, extent = max(
            ((p, _extent(keys, start, p)) for p in range(1, LONGEST_PERIOD + 1)),
            key=lambda pair: (pair[1] // pair[0] >= FEWEST_PERIODS, pair[1], -pair[0]),
        )
        if extent // period < FEWEST_PERIODS:
            found.append(Stretch((start,), 1))
            start += 1
            continue
        middle, times = start + period, extent // period - 2
        found += [Stretch((i,), 1) for i in range(start, middle)]
        found.append(Stretch(tuple(range(middle, middle + period)), times))
        start += extent
        found += [Stretch((i,), 1) for i in range(middle + times * period, start)]
    return found


def periods(keys: Sequence[object]) -> Iterator[Stretch]:
    """Cut a sequence into stretches of keys that say all about what they stand for."""
    start = 0
    while start < len(keys):
        covered = [_extent(keys, start, p) // p * p for p in range(1, LONGEST_PERIOD + 1)]
        longest = max(covered)
        period = covered.index(longest) + 1 if longest > LONGEST_PERIOD else 1
        times = covered[period - 1] // period
        yield Stretch(tuple(range(start, start + period)), times)
        start += period * times


def _extent(keys: Sequence[object], start: int, period: int) -> int:
    """Count the units from `start` on that repeat what stands `period` before them."""
    end = start + period
    while end < len(keys) and keys[end] == keys[end - period]:
        end += 1
    return min(end, len(keys)) - start


def micro_steps(count: int) -> Iterator[tuple[int, bool]]:
    """Yield the micro-steps to write with how often each happens, and whether it is the last.

    The first differs from the second by what it finds, the last by what it reduces.
    """
    if count < FEWEST_PERIODS:
        yield from ((1, i == count - 1) for i in range(count))
    else:
        yield from ((1, False), (count - 2, False), (1, True))
