"""The clocks of many plans at once: the same walk, with an array on each clock.

What clocks show after each number of micro-steps is kept on the way to the most, and from there on
each of these numbers is a plan of its own.
"""

from functools import reduce
from typing import Final

import numpy as np

from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Event, Item, Repeat
from zeroplan.timing.many_copies import Sides, State, merged, settled
from zeroplan.timing.many_leaps import Leaps
from zeroplan.timing.many_micro_steps import Reached
from zeroplan.timing.many_parts import Takes
from zeroplan.timing.many_prices import Array
from zeroplan.timing.many_some import Some
from zeroplan.timing.steady import STEADY
from zeroplan.timing.walk import HOST, SENDING

__all__ = ["ManyClocks"]

FEW: Final = 2
"""Plans are taken out of their arrays where fewer than one in so many go on. [count]"""

WORTHWHILE: Final = 256
"""In so many plans nothing is worth taking out: an array of one takes as long. [count]"""

PATIENCE: Final = 8
"""Rounds of micro-steps after which few plans are left to run alone. [count]"""

STRAGGLERS: Final = 16
"""So many plans may be left: a copy for few takes as long as one for many. [count]"""

SENT: Final = "all that is sent"
"""Name of the clock that shows when the last collective has ended."""


@dataclass(slots=True)
class ManyClocks:
    """Clocks of many plans, moved as `walk` moves those of one.

    A copy of a repeat turns clocks into maxima of sums of clocks. Where every maximum is decided by
    the same side in two copies, and each clock advances alike in both, all copies between them do
    the same: leads change by the same from copy to copy, and what has one sign at both ends has it
    in between. So copies are leapt over, and the one behind the leap is the proof.
    """

    prices: Takes
    overlaps: bool
    more: Array
    """Micro-steps beyond those that the script tells, over [A, plans], or a number. [count]"""
    clocks: dict[str, Array] = field(default_factory=dict)
    """When each stream is free, and when what bears a mark has ended. [s]"""
    waited: Array = 0.0
    """What the compute stream waited for other streams so far, or was taken by them. [s]"""
    slowed: Array = 0.0
    """How much longer its kernels took beside collectives. [s]"""
    sides: Sides = field(init=False)
    """Which were the later ones, while copies are compared."""
    compared: bool = False
    """Whether the copy that runs is to be compared with another one."""
    tolerance: Array = 0.0
    """Lead below which both sides are equally late. [s]"""
    least: Array = 0.0
    """The same, below zero. [s]"""
    rows: int = 1
    """Numbers of micro-steps, each of which has plans of its own. [count]"""
    left: Array = field(default_factory=lambda: np.zeros((1, 1), bool))
    """Which plans are left to run alone: their clocks mean nothing any more. [A, plans]"""

    def __post_init__(self) -> None:
        """Begin with no side."""
        self.sides = Sides(self.prices.weights, self.prices.plans)

    @property
    def end(self) -> Array:
        """When the last stream is done. [s]"""
        return reduce(np.maximum, self.clocks.values(), 0.0)

    def run(self, items: tuple[Item, ...]) -> None:
        """Run items of a script one after the other."""
        for item in items:
            if isinstance(item, Event):
                self._pass(item)
            elif item.micro_steps and np.ndim(self.more):
                self._micro_steps(item)
            else:
                self._copies(item.items, np.asarray(item.times), None)

    def _pass(self, event: Event) -> None:
        seconds, kernels, elsewhere, issue, line, place = self.prices[event]
        clocks, later = self.clocks, self._later
        self.sides.place = place
        stream = event.stream if self.overlaps else "compute"
        ready = free = clocks.get(stream, 0.0)
        for name in event.waits:
            ready = later(ready, clocks.get(name, 0.0))
        if line:
            ready = later(ready, clocks.get(line, 0.0) - kernels)
        begun = clocks.get(HOST, 0.0)
        issued = clocks[HOST] = begun + issue
        start = later(ready, begun)
        end = start + seconds
        if stream == "compute" and not line:
            end = end + self._slowdown(start, seconds)
        clocks[stream] = end = later(end, issued)
        if line:
            clocks[line] = end
        if event.mark:
            clocks[event.mark] = end
        if stream in SENDING:
            clocks[SENT] = later(clocks.get(SENT, 0.0), end)
        if event.stream != stream:
            self.waited = self.waited + (end - free)
        elif stream == "compute":
            self._wait(ready, free, elsewhere)

    def _wait(self, ready: Array, free: Array, elsewhere: Array) -> None:
        for each in (0.0 if ready is free else ready - free, elsewhere):
            if not (isinstance(each, float) and each == 0.0):
                self.waited = self.waited + each

    def _slowdown(self, start: Array, seconds: Array) -> Array:
        """Return by how much kernels take longer for the collectives that run beside them. [s]"""
        if SENT not in self.clocks or (isinstance(seconds, float) and not seconds):
            return 0.0
        beside = self._later(self.clocks[SENT] - start, 0.0)
        if self.compared:
            self._later(beside, seconds)
        slowed = self.prices.slowdown * np.minimum(beside, seconds)
        self.slowed = self.slowed + slowed
        return slowed

    def _later(self, clock: Array, other: Array) -> Array:
        if self.compared:
            self.sides.add(clock - other, self.least)
        return np.maximum(clock, other)

    def _micro_steps(self, repeat: Repeat) -> None:
        """Run as many micro-steps as any plan has, and go on from where each of them is."""
        steps = repeat.times + self.more
        reached = Reached(steps)
        self._copies(repeat.items, steps.max(axis=0), reached)
        self.rows, self.left = len(steps), reached.missing
        self._show(reached.state.flat())

    def _copies(self, items: tuple[Item, ...], times: Array, reached: Reached | None) -> None:
        before = self._state()
        first = self._copy(items, compared=self.compared)
        if reached:
            reached.add(before, first, first, np.ones_like(times))
        self._leap(Leaps(items=items, left=times - 1, last=first, reached=reached))

    def _leap(self, leaps: Leaps) -> None:
        """Run the copies that are left, but for those that are leapt over."""
        reached = leaps.reached
        while (goes := leaps.goes).any():
            if reached and leaps.rounds >= PATIENCE and reached.wanting <= STRAGGLERS:
                return
            if _few(goes):
                self._leap_apart(leaps, Some(goes))
                return
            before, ahead, last = self._state(), leaps.ahead, leaps.last
            for name, moved in last.clocks.items():
                self.clocks[name] = self.clocks[name] + ahead * moved
            self.sides.pattern = before.pattern + ahead * last.pattern
            copy = settled(last, self._copy(leaps.items, compared=True))
            if self.compared:
                self.sides.pattern = self.sides.pattern + leaps.placed(copy)
            self.waited = self.waited + ahead * (last.waited + copy.waited) / 2
            self.slowed = self.slowed + ahead * (last.slowed + copy.slowed) / 2
            done = leaps.proved(copy, self.tolerance)
            self._show(merged(done, self._state(), before))
            leaps.go_on(before, copy, done, self.tolerance)

    def _leap_apart(self, leaps: Leaps, some: Some) -> None:
        """Take some of the plans out, let them leap, and put them back."""
        few = self.taken_out(some, self.prices.of(some.places))
        few_leaps = leaps.of(some)
        few._leap(few_leaps)  # noqa: SLF001
        for name, clock in few.clocks.items():
            self.clocks[name] = some.among(self.clocks.get(name, 0.0), clock)
        self.waited = some.among(self.waited, few.waited)
        self.slowed = some.among(self.slowed, few.slowed)
        self.sides.pattern = some.among(self.sides.pattern, few.sides.pattern)
        if leaps.reached and few_leaps.reached:
            leaps.reached.join(few_leaps.reached, some)

    def _copy(self, items: tuple[Item, ...], *, compared: bool) -> State:
        """Run one copy; return what it did."""
        before, outer = self._state(), self.compared
        self.compared = compared
        self.tolerance = STEADY * self.end
        self.least = -self.tolerance
        self.run(items)
        self.compared = outer
        return self._state().since(before)

    def taken_out(self, some: Some, prices: Takes) -> "ManyClocks":
        """Return the clocks of some of the plans, to go on with their prices."""
        few = ManyClocks(prices, self.overlaps, self.more)
        few._show(self._state().of(some))
        return few

    def _state(self) -> State:
        return State(dict(self.clocks), self.waited, self.slowed, self.sides.pattern)

    def _show(self, state: State) -> None:
        self.clocks, self.waited, self.slowed, self.sides.pattern = state


def _few(those: Array) -> bool:
    return bool(np.size(those) > WORTHWHILE and FEW * np.count_nonzero(those) < np.size(those))
