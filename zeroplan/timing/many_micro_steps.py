"""Numbers of micro-steps that plans differ in: those of few are on the way to many."""

import numpy as np

from zeroplan.timing.many_copies import State
from zeroplan.timing.many_prices import Array
from zeroplan.timing.many_some import Some

__all__ = ["Reached"]


class Reached:
    """What clocks show after each number of micro-steps.

    Parameters
    ----------
    steps
        The numbers, over [A, plans].

    """

    def __init__(self, steps: Array) -> None:
        self.steps, self.done = steps, np.zeros(steps.shape[1], int)
        self.missing = np.ones(steps.shape, bool)
        """What is not reached: its clocks mean nothing."""
        zeros = np.zeros(steps.shape)
        self.state = State({}, zeros, zeros, zeros.astype(int))

    @property
    def wanting(self) -> int:
        """How many are not reached. [count]"""
        return int(np.count_nonzero(self.missing))

    def add(self, before: State, last: State, copy: State, copies: Array) -> None:
        """Go on by so many copies, and keep what clocks show after numbers in between.

        They move the clocks as the copy before them did, `last`, but for the last of them, `copy`:
        it does nearly the same, or is the only one. How long they wait changes evenly from the one
        to the other.
        """
        further = self.steps - self.done
        reached = self.missing & (further <= copies)
        self.done = self.done + copies
        if not reached.any():
            return
        self.missing = self.missing & ~reached
        bends = further * (further + 1) / 2 / np.maximum(copies, 1)
        known, leapt, run = self.state, np.minimum(further, copies - 1), further == copies
        clocks = {
            name: np.where(
                reached,
                before.clocks.get(name, 0.0) + leapt * last.clocks.get(name, 0.0) + run * moved,
                known.clocks.get(name, 0.0),
            )
            for name, moved in copy.clocks.items()
        }
        waited, slowed = (
            np.where(reached, begun + further * first + bends * (final - first), old)
            for begun, first, final, old in (
                (before.waited, last.waited, copy.waited, known.waited),
                (before.slowed, last.slowed, copy.slowed, known.slowed),
            )
        )
        self.state = State(clocks, waited, slowed, known.pattern)

    def of(self, some: Some) -> "Reached":
        """Return the same of some of the plans, to go on with."""
        few = Reached(some.of(self.steps))
        few.done, few.missing = some.of(self.done), some.of(self.missing)
        return few

    def join(self, few: "Reached", some: Some) -> None:
        """Take over what some of the plans reached since."""
        places = some.places
        since = self.missing[:, places] & ~few.missing

        def joined(values: Array, others: Array) -> Array:
            whole = np.array(np.broadcast_to(values, self.missing.shape))
            whole[:, places] = np.where(since, others, whole[:, places])
            return whole

        known, found = self.state, few.state
        if since.any():
            clocks = {
                name: joined(known.clocks.get(name, 0.0), clock)
                for name, clock in found.clocks.items()
            }
            waited, slowed = joined(known.waited, found.waited), joined(known.slowed, found.slowed)
            self.state = State(clocks, waited, slowed, known.pattern)
        self.missing[:, places] = few.missing
        self.done[places] = few.done
