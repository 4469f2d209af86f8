"""Which copies of a repeat plans have left, and over how many of them they leap."""

from functools import cache

import numpy as np

from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Item
from zeroplan.timing.many_copies import State, alike, merged, same
from zeroplan.timing.many_micro_steps import Reached
from zeroplan.timing.many_prices import Array
from zeroplan.timing.many_some import Some

__all__ = ["Leaps"]


@dataclass(slots=True, kw_only=True)
class Leaps:
    """What plans have done of a repeat, each in its own way.

    In a round every plan leaps over some copies, or none, and runs the one behind them. Where it
    does what the last one before the leap did, those between did so, too; else the plan stays where
    it was, and tries half as many.

    That holds for a repeat within a repeat as well: the sums of the inner one's copies say which of
    them did what, for each copy counts with a weight of its own.
    """

    items: tuple[Item, ...]
    """What is repeated."""
    left: Array
    """How many copies are left. [count]"""
    last: State
    """What the last one did."""
    reached: Reached | None
    """Where numbers of micro-steps are kept on the way, if they are what is repeated."""
    ahead: Array = 0
    """How many copies to leap over. [count]"""
    fails: Array = 0
    """How many would be too many, where a leap failed. [count]"""
    behind: Array = 1
    """How many copies are done. [count]"""
    rounds: int = 1
    """How many it took, the first copy included. [count]"""

    @property
    def goes(self) -> Array:
        """Which plans have copies left."""
        return self.left > 0

    def of(self, some: Some) -> "Leaps":
        """Return those of some of the plans."""
        return replace(
            self,
            left=some.of(self.left),
            last=self.last.of(some),
            reached=self.reached and self.reached.of(some),
            ahead=some.of(self.ahead),
            fails=some.of(self.fails),
            behind=some.of(self.behind),
        )

    def proved(self, copy: State, tolerance: Array) -> Array:
        """Say which plans have done a copy, and those they leapt over."""
        return self.goes & ((self.ahead == 0) | same(self.last, copy, tolerance))

    def placed(self, copy: State) -> Array:
        """Return the patterns of a round by the places of its copies, which tell them apart.

        Else what the first copy does and the last does not would be what the last one does and the
        first does not.
        """
        weights = _of_first(int(np.max(self.behind + self.left)))
        run = np.minimum(self.behind + self.ahead, len(weights) - 2)
        leapt = weights[run] - weights[np.minimum(self.behind, run)]
        return leapt * self.last.pattern + (weights[run + 1] - weights[run]) * copy.pattern

    def go_on(self, before: State, copy: State, done: Array, tolerance: Array) -> None:
        """Take note of a round, and say what the next one leaps over.

        Parameters
        ----------
        before
            What clocks showed.
        copy
            What a copy did behind the leap.
        done
            Which plans it counts for.
        tolerance
            Difference below which clocks move alike. [s]

        """
        leapt, copies = self.ahead > 0, done * (self.ahead + 1)
        if self.reached:
            self.reached.add(before, self.last, copy, copies)
        self.left, self.behind = self.left - copies, self.behind + copies
        all_left = alike(self.last, copy, tolerance) * np.maximum(self.left - 1, 0)
        self.fails = np.where(done, np.maximum(self.fails - copies, 0), self.ahead)
        self.ahead = np.where(leapt, self.fails // 2, all_left)
        self.last = merged(done, copy, self.last)
        self.rounds += 1


@cache
def _of_first(copies: int) -> Array:
    """Return the sums of random weights of the first copies: of none, of one, ... of all."""
    weights = np.random.default_rng(1).integers(2**62, size=copies)
    return np.concatenate([[0], np.cumsum(weights)])
