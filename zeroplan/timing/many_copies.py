"""What copies of a repeat did, plan by plan, and whether two did the same."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from zeroplan.timing.many_prices import Array

__all__ = ["Copy", "State", "Told", "alike", "same"]


LOOKS: Final = 32
"""Decisions after which it is asked whether any plan is left. [count]"""


class State(NamedTuple):
    """Clocks and sums, or by how much they move. [s]"""

    clocks: dict[str, Array]
    waited: Array
    slowed: Array


class Copy(NamedTuple):
    """What one copy of a repeat did, plan by plan."""

    moves: State
    decisions: list[Array]
    """At every wait, whether the waiting side was the later one; of nested copies, in how many."""


class Told:
    """What is told of a repeat to the one around it: in how many copies each wait was late."""

    def __init__(self, outer: list[Array] | None) -> None:
        self.outer = outer
        self.begins = len(outer or ())

    @property
    def asked(self) -> bool:
        """Whether there is one around it that compares copies."""
        return self.outer is not None

    def add(self, copy: Copy, copies: Array) -> None:
        """Add what so many copies decided."""
        if self.outer is None:
            return
        if len(self.outer) == self.begins:
            self.outer += [copies * each for each in copy.decisions]
        else:
            for place, each in enumerate(copy.decisions, self.begins):
                self.outer[place] = self.outer[place] + copies * each

    def join(self, few: "Told", among_none: Callable[[Array], Array]) -> None:
        """Add what is told of some of the plans."""
        for place, each in enumerate(few.outer or (), self.begins):
            if self.outer is not None:
                self.outer[place] = self.outer[place] + among_none(each)


def same(last: Copy, copy: Copy, tolerance: Array) -> Array:
    """Say of which plans two copies did the same."""
    equal = alike(last.moves, copy.moves, tolerance)
    for place, (one, other) in enumerate(zip(last.decisions, copy.decisions, strict=True)):
        equal = equal & (one == other)
        if place % LOOKS == 0 and not equal.any():
            break
    return equal


def alike(some: State, others: State, tolerance: Array) -> Array:
    """Say of which plans all clocks moved alike."""
    equal: Array = np.bool_(some.clocks.keys() == others.clocks.keys())
    for name, moved in some.clocks.items() if equal else ():
        equal = equal & (np.abs(moved - others.clocks[name]) <= tolerance)
    return equal
