"""ZeRO-3's parameter coordinator: what is gathered, kept and released at each module hook.

What it decides depends on element counts and settings alone, not on the batch or the link, so it
is simulated once per structure, and once for equal blocks that find it in the same state. Source:
`PartitionedParameterCoordinator` in deepspeed/runtime/zero/partitioned_param_coordinator.py
(0.19.8).
"""

from bisect import bisect_left

from zeroplan.records import dataclass, field
from zeroplan.schedule.zero3_recurrence import (
    Limits,
    State,
    advance,
    alike,
    situation,
)
from zeroplan.schedule.zero3_structure import Action, Actions, Lap, Laps, Structure
from zeroplan.schedule.zero3_trace import Trace, traced

__all__ = ["Coordinator"]


@dataclass(slots=True)
class Coordinator:
    """The coordinator; names follow DeepSpeed's."""

    structure: Structure
    now: State = field(default_factory=State)
    complete: bool = False
    released: dict[tuple[int, int], list[tuple[int, ...]]] = field(default_factory=dict)
    """What is released at the hooks of a lap's copy, as places of its first copy: decided in the
    first traced micro-step, kept ever after."""
    seen: Trace = field(init=False)
    actions: list[Action] = field(default_factory=list)
    room: int = 0
    """The least room under the live limit that a prefetch of this copy found. [elements]"""

    def __post_init__(self) -> None:
        self.seen = traced(self.structure)

    def _size(self, places: tuple[int, ...] | list[int]) -> int:
        return sum([self.structure.elements[p] for p in places])

    def run(self) -> Laps:
        """Run one micro-step."""
        self.now = self.now.between()
        done = [tuple(self._lap(number)) for number in range(len(self.seen.tracks))]
        self.actions = []
        self._release_leftovers()
        self.complete = True
        return (*done, (Actions((tuple(self.actions),)),))

    def _lap(self, number: int) -> list[Actions]:
        """Run a lap; copies that go like the one before are skipped."""
        track, copy = self.seen.tracks[number], 0
        lap, done = track.lap, list[Actions]()
        before = now = None
        while copy < lap.times:
            if lap.times > 1:
                before, now = now, situation(self.now, track, copy)
            copies = 0
            if before is not None and now is not None:
                drained = self.now.queued == len(self.seen.uses)
                limits = Limits(drained, self.structure.prefetch_bucket, self.room)
                copies = alike(before, now, track, copy, limits if self.complete else None)
                copies = self._decided_alike(number, copy, copies)
            if copies and before is not None and now is not None:
                advance(self.now, track, copy, copies, self.seen.uses)
                self.now.n_available += copies * (now.n_available - before.n_available)
                done[-1] = done[-1]._replace(times=done[-1].times + copies)
                copy, now = copy + copies, None
            else:
                done.append(Actions(self._copy(number, lap, copy)))
                copy += 1
        return done

    def _decided_alike(self, number: int, copy: int, copies: int) -> int:
        """Return how many of these copies release what the one before releases [count].

        The distance to a parameter's next use changes by the same from copy to copy, so that what
        holds for the first and the last of them holds for those between.
        """
        if not self.complete or not copies:
            return copies
        decided = self.released
        before = decided[number, copy - 1]
        if (number, copy) in decided:
            same = (c for c in range(copies) if decided[number, copy + c] != before)
            return next(same, copies)
        near = self._near(number, copy - 1)
        while copies and self._near(number, copy + copies - 1) != near:
            copies //= 2
        decided |= {(number, copy + c): before for c in range(copies)}
        return copies

    def _near(self, number: int, copy: int) -> list[bool]:
        """Return which parameters come again soon, at each hook of a copy that may release them."""
        track, found = self.seen.tracks[number], list[bool]()
        step = track.first_step + copy * track.fetches
        for hook in track.lap.hooks:
            if hook.fetch:
                step += 1
            else:
                found += [
                    self._reused_soon(p + copy * track.lap.shift, step) for p in hook.parameters
                ]
        return found

    def _copy(self, number: int, lap: Lap, copy: int) -> tuple[tuple[Action, ...], ...]:
        """Run the hooks of a copy."""
        offset, done = copy * lap.shift, []
        self.room, chosen = self.structure.max_live, self.released.get((number, copy))
        decided = list[tuple[int, ...]]()
        for fetch, parameters, module, unit, recomputed in lap.hooks:
            self.actions = []
            places = [p + offset for p in parameters]
            if fetch:
                self._fetch(places, (module, unit))
            else:
                again = None if chosen is None else [p + offset for p in chosen[len(decided)]]
                gone = self._release(places, (module, unit), again)
                self._release_now([p + offset for p in recomputed])
                decided.append(tuple([p - offset for p in gone]))
            done.append(tuple(self.actions))
        if self.complete:
            self.released[number, copy] = decided
        return tuple(done)

    def _fetch(self, parameters: list[int], module: tuple[int, ...]) -> None:
        """Gather what the module needs, wait for it, then prefetch (`fetch_sub_module`)."""
        state = self.now
        self._gather([p for p in parameters if self._missing(p)])
        for parameter in parameters:
            state.active.setdefault(parameter, set()).add(module)
            if parameter in state.in_flight:
                self._take(parameter)
        if state.gathering:
            self.actions.append(Action("await"))
            state.gathering = False
        if self.complete:
            self._pop_own(parameters)
            self._prefetch()
        state.step_id += 1

    def _missing(self, parameter: int) -> bool:
        return parameter not in self.now.available and parameter not in self.now.in_flight

    def _gather(self, parameters: list[int]) -> None:
        if not parameters:
            return
        self.now.n_available += self._size(parameters)
        self.now.gathering = True
        for secondary in (True, False):
            group = tuple(sorted([p for p in parameters if (p in self.now.secondary) is secondary]))
            if group:
                self.now.in_flight |= dict.fromkeys(group, group)
                self.actions.append(Action("gather", group, secondary=secondary))

    def _take(self, parameter: int) -> None:
        """Wait for an all-gather; its flat buffer goes when all of its parameters were taken."""
        state = self.now
        group = state.in_flight.pop(parameter)
        secondary = parameter in state.secondary  # others of the group may have left a part since
        if parameter not in state.available:
            state.available |= dict.fromkeys(group, len(group) == 1)
            self.actions.append(Action("take", group, secondary=secondary))
        if not any(state.in_flight.get(p) is group for p in group):
            self.actions.append(Action("drop", group, secondary=secondary))

    def _pop_own(self, parameters: list[int]) -> None:
        """Take the module's own parameters off the queue, if no prefetch did."""
        state = self.now
        own = {p for p in parameters if state.fetched_for.get(p, -1) < state.step_id}
        popped: set[int] = set()
        while len(popped) < len(own) and state.queued < len(self.seen.uses):
            popped.add(self._pop())

    def _pop(self) -> int:
        parameter, step = self.seen.uses[self.now.queued]
        self.now.queued += 1
        self.now.fetched_for[parameter] = step
        return parameter

    def _prefetch(self) -> None:
        """Gather what comes next; what is there already counts as fetched for its next use."""
        state, limits = self.now, self.structure
        live = limits.max_live - state.n_available
        self.room = min(self.room, live)
        room = min(live, limits.prefetch_bucket)
        wanted: dict[int, None] = {}
        size = 0
        while size < room and state.queued < len(self.seen.uses):
            parameter = self._pop()
            if self._missing(parameter) and parameter not in wanted:
                wanted[parameter] = None
                size += limits.elements[parameter]
        self._gather(list(wanted))

    def _release(
        self, parameters: list[int], module: tuple[int, ...], chosen: list[int] | None
    ) -> list[int]:
        """Release what was chosen, or is now; before the trace is known, all the module's."""
        if chosen is None:
            chosen = self._to_release(parameters) if self.complete else parameters
        active = self.now.active
        for parameter in parameters:
            users = active.get(parameter, set())
            users.discard(module)
            if not users:
                active.pop(parameter, None)
        self._drop([p for p in chosen if p in self.now.available and p not in active])
        return chosen

    def _to_release(self, parameters: list[int]) -> list[int]:
        """Choose what goes: not what persists, was prefetched for later, or comes again soon."""
        step = self.now.step_id
        return [
            p
            for p in parameters
            if p not in self.structure.persistent
            and self.now.fetched_for.get(p, -1) <= step
            and not self._reused_soon(p, step)
        ]

    def _reused_soon(self, parameter: int, step: int) -> bool:
        uses = self.seen.by_parameter[parameter]
        at = bisect_left(uses, step)
        if at == len(uses):
            return False
        apart = self.seen.distance[uses[at]] - self.seen.distance[step]
        return apart < self.structure.max_reuse_distance

    def _release_leftovers(self) -> None:
        """Release parameters of modules whose input needs no gradient: no hook follows them."""
        left, self.now.active = list(self.now.active), {}
        self._release_now(left)

    def _release_now(self, parameters: list[int]) -> None:
        """Release what neither persists nor is in use, however soon it comes again."""
        kept = {*self.now.active, *self.structure.persistent}
        self._drop([p for p in parameters if p in self.now.available and p not in kept])

    def release_all(self) -> tuple[Action, ...]:
        """Release what is there, as the optimizer step does first."""
        self.actions = []
        self._drop(list(self.now.available))
        return tuple(self.actions)

    def _drop(self, parameters: list[int]) -> None:
        if self.structure.secondary:
            fresh = tuple([p for p in parameters if p not in self.now.secondary])
            self.now.secondary.update(fresh)
            if fresh:
                self.actions.append(Action("keep", fresh))
        if parameters:
            alone = tuple([self.now.available.pop(p) for p in parameters])
            self.now.n_available -= self._size(parameters)
            self.actions.append(Action("release", tuple(parameters), alone))
