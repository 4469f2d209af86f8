"""When the copies of a repeat have become even: those that follow do as the last one did.

A clock's new value is a maximum of sums of old ones. So each copy advances every clock as the copy
before it did, as long as each of these maxima is decided by the same side.
"""

from typing import Final, NamedTuple

__all__ = ["STEADY", "Copy", "carried", "even_copies", "moved_on", "total"]

STEADY: Final = 1e-12
"""Difference below which clocks show the same, as a share of the latest one. [1]"""

Clocks = dict[str, float]


class Copy(NamedTuple):
    """What one copy of a repeat did. [s]"""

    advances: Clocks
    """Of the clocks that moved."""
    leads: list[float]
    """At every wait, by how much the waiting side was the later one."""
    leaps: list[tuple[int, int]]
    """Of repeats inside it: behind how many waits, and over how many copies it leapt. [count]"""
    compute: float
    """By how much longer the compute stream was busy, or waited for its host."""
    idle: float
    """The part in which it waited for its host."""


def carried(earlier: Copy, last: Copy, copies: int) -> list[float]:
    """Carry the leads of two even copies on to one that comes so many copies later."""
    return [b + copies * (b - a) for a, b in zip(earlier.leads, last.leads, strict=True)]


def total(earlier: float, last: float, copies: int) -> float:
    """Add up a figure over the copies that follow, where it changes by the same each time.

    The host's lead may shrink from copy to copy while every clock keeps its pace, so that each
    copy waits longer for the host than the one before.
    """
    change = last - earlier
    if abs(change) <= STEADY * abs(last):
        change = 0.0  # rounding, which the square of the copies would magnify
    return copies * last + copies * (copies + 1) / 2 * change


def moved_on(last: Copy, clocks: Clocks) -> bool:
    """Whether all clocks advanced alike, and those that stand still decide nothing any more.

    Then no copy that follows differs from the last one, whatever came before it.
    """
    moved = last.advances
    if not moved:
        return True
    if max(moved.values()) - min(moved.values()) > _tolerance(clocks):
        return False
    begun = min(clocks[name] - advance for name, advance in moved.items())
    return all(clock <= begun or name in moved for name, clock in clocks.items())


def even_copies(earlier: Copy, last: Copy, clocks: Clocks, left: int) -> int:
    """Count the copies, of those left, that go on as the last two did."""
    tolerance = _tolerance(clocks)
    return _until_met(earlier, last, left, tolerance) if _keep_pace(earlier, last, tolerance) else 0


def _tolerance(clocks: Clocks) -> float:
    return STEADY * max(clocks.values(), default=0.0)


def _keep_pace(earlier: Copy, last: Copy, tolerance: float) -> bool:
    """Whether each clock advanced as before, at a pace of its own."""
    return (
        earlier.advances.keys() == last.advances.keys()
        and len(earlier.leads) == len(last.leads)
        and earlier.leaps == last.leaps  # else their leads belong to other copies inside
        and all(
            abs(advance - earlier.advances[name]) <= tolerance
            for name, advance in last.advances.items()
        )
    )


def _until_met(earlier: Copy, last: Copy, left: int, tolerance: float) -> int:
    """Count the copies before a clock meets another, after which the other side decides.

    Streams that nobody waits for, or a host that is ahead, drift apart: leads change by the same
    from copy to copy.
    """
    even = left
    for a, b in zip(earlier.leads, last.leads, strict=True):
        change = b - a
        final = b + left * change
        if a * final < 0 and min(abs(a), abs(final)) > tolerance:
            even = min(even, int(-b / change)) if a * b > 0 else 0
    return even
