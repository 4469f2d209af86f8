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
        left, copies = left - 1, 1
        while (left > 0).any():
            if repeat.micro_steps and copies >= PATIENCE and self._leave(left > 0):
                return
            copies += 1
            earlier, last = last, self._copy(repeat.items, left > 0, decides=True)
            told.add(last, left > 0)
            left = left - (left > 0)
            if (left > 0).any():
                even = alike(earlier.moves, last.moves, self.tolerance)
                left = left - self._leap(repeat.items, last, left * even, told)

    def _leave(self, those: Array) -> bool:
        """Leave plans to run alone, if they are few; say whether they were."""
        every = np.broadcast_to(those, np.broadcast_shapes(those.shape, np.shape(self.end)))
        if np.count_nonzero(every) > STRAGGLERS:
            return False
        self.left = self.left | every
        return True

    def _leap(self, items: tuple[Item, ...], last: Copy, left: Array, told: Told) -> Array:
        """Leap over as many copies as do what the last one did; return how many are done with."""
        done, ahead = np.zeros_like(left), np.maximum(left - 1, 0)
        while (ahead > 0).any():
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

    def _copy(self, items: tuple[Item, ...], active: Array, *, decides: bool) -> Copy:
        """Run one copy, for the plans that still have one to run."""
        before, outer = self._state(), self.decisions
        self.decisions = [] if decides else None
        self.tolerance = STEADY * self.end
        self.least = -self.tolerance
        if FEW * np.count_nonzero(active) < np.size(active):
            self._run_for(active, items)
        else:
            self.run(items)
            if not active.all():
                self._keep(before, active)
        copy = Copy(self._since(before), self.decisions or [])
        self.decisions = outer
        return copy

    def _run_for(self, active: Array, items: tuple[Item, ...]) -> None:
        """Run for few of the plans, taken out and put back."""
        shape = np.broadcast_shapes(active.shape, np.shape(self.end))
        places = np.flatnonzero(np.broadcast_to(active, shape))

        def taken(values: Array) -> Array:
            return np.broadcast_to(values, shape).ravel()[places] if varies(values) else values

        def put(values: Array, whole: Array) -> Array:
            whole.ravel()[places] = values
            return whole

        def among(values: Array) -> Array:
            return np.array(np.broadcast_to(values, shape), order="C")

        few = replace(
            self,
            prices=self.prices.of(places % shape[-1]),
            more=taken(self.more),
            clocks={name: taken(clock) for name, clock in self.clocks.items()},
            waited=taken(self.waited),
            slowed=taken(self.slowed),
            tolerance=taken(self.tolerance),
            least=taken(self.least),
        )
        few.run(items)
        for name, clock in few.clocks.items():
            self.clocks[name] = put(clock, among(self.clocks.get(name, 0.0)))
        self.waited = put(few.waited, among(self.waited))
        self.slowed = put(few.slowed, among(self.slowed))
        if few.decisions is not None:
            self.decisions = [
                put(each, np.zeros(shape, np.asarray(each).dtype)) for each in few.decisions
            ]

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
