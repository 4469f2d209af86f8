"""The clocks of many plans at once: the same walk, with an array on each clock.

The plans of an array share a script, whose sizes are arrays over batches. Each batch meets each
machine, so that an array has an element for every pair of them, machines fastest. Plans of four and
more micro-steps share a script, too: how many there are is an axis in front.
"""

from functools import reduce
from typing import Final

import numpy as np

from zeroplan.records import dataclass, field, replace
from zeroplan.schedule.events import Event, Item, Repeat
from zeroplan.timing.many_copies import Copy, State, Told, alike, same
from zeroplan.timing.many_parts import Takes
from zeroplan.timing.many_prices import Array, varies
from zeroplan.timing.steady import STEADY
from zeroplan.timing.walk import HOST, SENDING

__all__ = ["ManyClocks"]

FEW: Final = 2
"""Of so many plans at most one is taken out to run alone. [count]"""

PATIENCE: Final = 6
"""Copies of a micro-step after which few plans are left to run alone. [count]"""

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
    """Micro-steps beyond those that the script tells. [count]"""
    clocks: dict[str, Array] = field(default_factory=dict)
    """When each stream is free, and when what bears a mark has ended. [s]"""
    waited: Array = 0.0
    """What the compute stream waited for other streams so far, or was taken by them. [s]"""
    slowed: Array = 0.0
    """How much longer its kernels took beside collectives. [s]"""
    decisions: list[Array] | None = None
    """Kept while the copy of a repeat is to be compared with another one."""
    tolerance: Array = 0.0
    """Lead below which both sides are equally late. [s]"""
    least: Array = 0.0
    """The same, below zero. [s]"""
    left: Array = False
    """Which plans are left to run alone: their clocks mean nothing any more."""

    @property
    def end(self) -> Array:
        """When the last stream is done. [s]"""
        return reduce(np.maximum, self.clocks.values(), 0.0)

    def run(self, items: tuple[Item, ...]) -> None:
        """Run items of a script one after the other."""
        for item in items:
            if isinstance(item, Event):
                self._pass(item)
            else:
                self._repeat(item)

    def _pass(self, event: Event) -> None:
        seconds, kernels, elsewhere, issue, line = self.prices[event]
        clocks, later = self.clocks, self._later
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
        if self.decisions is not None:
            self._later(beside, seconds)
        slowed = self.prices.slowdown * np.minimum(beside, seconds)
        self.slowed = self.slowed + slowed
        return slowed

    def _later(self, clock: Array, other: Array) -> Array:
        if self.decisions is not None:
            self.decisions.append(clock - other > self.least)
        return np.maximum(clock, other)

    def _repeat(self, repeat: Repeat) -> None:
        left = np.asarray(repeat.times + self.more * repeat.micro_steps)
        told = Told(self.decisions)
        last = self._copy(repeat.items, left > 0, decides=told.asked)
        told.add(last, left > 0)
        self._go_on(repeat, left - 1, last, told, copies=1)

    def _go_on(self, repeat: Repeat, left: Array, last: Copy, told: Told, *, copies: int) -> None:
        """Run the copies that are left, after so many."""
        while (left > 0).any():
            if repeat.micro_steps and copies >= PATIENCE and self._leave(left > 0):
                return
            if _few(left > 0):
                self._go_on_apart(repeat, left, last, told, copies=copies)
                return
            copies += 1
            earlier, last = last, self._copy(repeat.items, left > 0, decides=True)
            told.add(last, left > 0)
            left = left - (left > 0)
            if (left > 0).any():
                even = alike(earlier.moves, last.moves, self.tolerance)
                ahead = np.maximum(left * even - 1, 0)
                left = left - self._leap(repeat.items, last, ahead, told)

    def _go_on_apart(
        self, repeat: Repeat, left: Array, last: Copy, told: Told, *, copies: int
    ) -> None:
        """Run the copies that are left for few of the plans, taken out and put back."""
        some = _Some(left > 0, np.shape(self.end))
        few, few_told = self._taken_out(some), Told([] if told.asked else None)
        few._go_on(repeat, some.of(left), some.of_copy(last), few_told, copies=copies)  # noqa: SLF001
        self._put_back(some, few)
        told.join(few_told, some.among_none)

    def _leave(self, those: Array) -> bool:
        """Leave plans to run alone, if they are few; say whether they were."""
        every = np.broadcast_to(those, np.broadcast_shapes(those.shape, np.shape(self.end)))
        if np.count_nonzero(every) > STRAGGLERS:
            return False
        self.left = self.left | every
        return True

    def _leap(self, items: tuple[Item, ...], last: Copy, ahead: Array, told: Told) -> Array:
        """Leap over as many copies as do what the last one did; return how many are done with."""
        done = np.zeros_like(ahead)
        while (ahead > 0).any():
            if _few(ahead > 0):
                return done + self._leap_apart(items, last, ahead, told)
            before = self._state()
            for name, advance in last.moves.clocks.items():
                self.clocks[name] = self.clocks[name] + ahead * advance
            copy = self._copy(items, ahead > 0, decides=True)
            proved = (ahead > 0) & same(last, copy, self.tolerance)
            self.waited = self.waited + ahead * (last.moves.waited + copy.moves.waited) / 2
            self.slowed = self.slowed + ahead * (last.moves.slowed + copy.moves.slowed) / 2
            self._keep(before, proved)
            leapt = proved * (ahead + 1)
            told.add(copy, leapt)
            done = done + leapt
            ahead = np.where(proved, 0, ahead // 2)
        return done

    def _leap_apart(self, items: tuple[Item, ...], last: Copy, ahead: Array, told: Told) -> Array:
        """Leap for few of the plans, taken out and put back."""
        some = _Some(ahead > 0, np.shape(self.end))
        few, few_told = self._taken_out(some), Told([] if told.asked else None)
        done = few._leap(items, some.of_copy(last), some.of(ahead), few_told)  # noqa: SLF001
        self._put_back(some, few)
        told.join(few_told, some.among_none)
        return some.among_none(done)

    def _copy(self, items: tuple[Item, ...], active: Array, *, decides: bool) -> Copy:
        """Run one copy, for the plans that still have one to run."""
        before, outer = self._state(), self.decisions
        self.decisions = [] if decides else None
        self.tolerance = STEADY * self.end
        self.least = -self.tolerance
        self.run(items)
        if not active.all():
            self._keep(before, active)
        copy = Copy(self._since(before), self.decisions or [])
        self.decisions = outer
        return copy

    def _taken_out(self, some: "_Some") -> "ManyClocks":
        """Return the clocks of some of the plans."""
        return replace(
            self,
            prices=self.prices.of(some.columns),
            more=some.of(self.more),
            clocks={name: some.of(clock) for name, clock in self.clocks.items()},
            waited=some.of(self.waited),
            slowed=some.of(self.slowed),
            decisions=None,
            tolerance=some.of(self.tolerance),
            least=some.of(self.least),
            left=False,
        )

    def _put_back(self, some: "_Some", few: "ManyClocks") -> None:
        """Take over what the clocks of some of the plans show."""
        for name, clock in few.clocks.items():
            self.clocks[name] = some.among(self.clocks.get(name, 0.0), clock)
        self.waited = some.among(self.waited, few.waited)
        self.slowed = some.among(self.slowed, few.slowed)
        if np.any(few.left):
            self.left = some.among(self.left, few.left)

    def _state(self) -> State:
        return State(dict(self.clocks), self.waited, self.slowed)

    def _since(self, before: State) -> State:
        clocks = {name: clock - before.clocks.get(name, 0.0) for name, clock in self.clocks.items()}
        return State(clocks, self.waited - before.waited, self.slowed - before.slowed)

    def _keep(self, before: State, those: Array) -> None:
        """Take back what was done, but for those plans."""
        for name, clock in self.clocks.items():
            self.clocks[name] = np.where(those, clock, before.clocks.get(name, 0.0))
        self.waited = np.where(those, self.waited, before.waited)
        self.slowed = np.where(those, self.slowed, before.slowed)


class _Some:
    """Some of many plans."""

    def __init__(self, those: Array, shape: tuple[int, ...]) -> None:
        self.shape = np.broadcast_shapes(those.shape, shape)
        self.places = np.flatnonzero(np.broadcast_to(those, self.shape))
        self.columns = self.places % self.shape[-1]

    def of(self, values: Array) -> Array:
        """Take their values out."""
        if not varies(values):
            return values
        if values.shape == self.shape[-1:]:
            return values[self.columns]
        return np.broadcast_to(values, self.shape).ravel()[self.places]

    def of_copy(self, copy: Copy) -> Copy:
        """Take out what a copy did for them."""
        moves = copy.moves
        clocks = {name: self.of(clock) for name, clock in moves.clocks.items()}
        state = State(clocks, self.of(moves.waited), self.of(moves.slowed))
        return Copy(state, [self.of(each) for each in copy.decisions])

    def among(self, all_values: Array, values: Array) -> Array:
        """Put their values among those of all."""
        whole = np.array(np.broadcast_to(all_values, self.shape), order="C")
        whole.ravel()[self.places] = values
        return whole

    def among_none(self, values: Array) -> Array:
        """Put their values among zeros."""
        return self.among(np.zeros((), np.asarray(values).dtype), values)


def _few(those: Array) -> bool:
    return bool(FEW * np.count_nonzero(those) < np.size(those))
