"""What copies of a repeat did, plan by plan, and whether two did the same."""

from typing import Final, NamedTuple

import numpy as np

from zeroplan.timing.many_prices import Array
from zeroplan.timing.many_some import Some
from zeroplan.timing.steady import STEADY

__all__ = ["Sides", "State", "alike", "merged", "same", "settled"]

ROWS: Final = 16
"""Waits that are summed up at once: few enough to stay in a processor's cache. [count]"""


class State(NamedTuple):
    """Clocks and sums, or by how much they move."""

    clocks: dict[str, Array]
    """[s]"""
    waited: Array
    """[s]"""
    slowed: Array
    """[s]"""
    pattern: Array
    """Of `Sides`."""

    def since(self, before: "State") -> "State":
        """Return by how much they moved."""
        clocks = {name: clock - before.clocks.get(name, 0.0) for name, clock in self.clocks.items()}
        sums = (now - then for now, then in zip(self[1:], before[1:], strict=True))
        return State(clocks, *sums)

    def of(self, some: Some) -> "State":
        """Take out those of some of the plans."""
        clocks = {name: some.of(clock) for name, clock in self.clocks.items()}
        return State(clocks, *map(some.of, self[1:]))

    def flat(self) -> "State":
        """Put those of several rows of plans side by side."""
        clocks = {name: np.ravel(clock) for name, clock in self.clocks.items()}
        return State(clocks, *map(np.ravel, self[1:]))


class Sides:
    """At which waits of a script the waiting side was the later one, of many plans.

    They are told by the sum of their weights: as weights are random, other waits have the same sum
    about once in 2^62 times.

    Parameters
    ----------
    weights
        One for each place of the script where two times are compared.
    plans
        How many plans there are. [count]

    """

    def __init__(self, weights: Array, plans: int) -> None:
        self.weights = weights
        self.place = 0
        """Of the next wait."""
        self._pattern = np.zeros(plans, np.int64)
        self._late = np.empty((ROWS, plans), bool)
        self._places: list[int] = []
        """Of the waits that are not in the sum yet."""

    def add(self, lead: Array, least: Array) -> None:
        """Add a wait, in which one side is later by so much; it counts as late from there. [s]"""
        np.greater(lead, least, out=self._late[len(self._places)])
        self._places.append(self.place)
        self.place += 1
        if len(self._places) == ROWS:
            self._sum_up()

    @property
    def pattern(self) -> Array:
        """The sum of the weights of all waits so far whose waiting side was the later one."""
        if self._places:
            self._sum_up()
        return self._pattern

    @pattern.setter
    def pattern(self, pattern: Array) -> None:
        self._pattern = pattern
        self._places = []

    def _sum_up(self) -> None:
        # arrays of integers wrap around
        late = self._late[: len(self._places)]
        self._pattern = self._pattern + self.weights[self._places] @ late
        self._places = []


def merged(those: Array, some: State, others: State) -> State:
    """Return the one state for those plans, and the other for the rest."""
    if those.all():
        return some
    clocks = {
        name: np.where(those, clock, others.clocks.get(name, 0.0))
        for name, clock in some.clocks.items()
    }
    pairs = zip(some[1:], others[1:], strict=True)
    return State(clocks, *(np.where(those, one, other) for one, other in pairs))


def settled(last: State, copy: State) -> State:
    """Let what a copy waited be what the last one did, where only rounding makes them differ."""

    def even(one: Array, other: Array) -> Array:
        found: Array = np.where(np.abs(other - one) <= STEADY * np.abs(one), one, other)
        return found[()]

    waited, slowed = even(last.waited, copy.waited), even(last.slowed, copy.slowed)
    return copy._replace(waited=waited, slowed=slowed)


def same(last: State, copy: State, tolerance: Array) -> Array:
    """Say of which plans two copies did the same: all clocks moved alike, led by the same sides."""
    return alike(last, copy, tolerance) & (last.pattern == copy.pattern)


def alike(some: State, others: State, tolerance: Array) -> Array:
    """Say of which plans all clocks moved alike."""
    equal: Array = np.bool_(some.clocks.keys() == others.clocks.keys())
    for name, moved in some.clocks.items() if equal else ():
        equal = equal & (np.abs(moved - others.clocks[name]) <= tolerance)
    return equal
