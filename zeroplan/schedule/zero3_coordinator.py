"""ZeRO-3's parameter coordinator: what is gathered, kept and released at each module hook.

What it decides depends on element counts and settings alone, not on the batch or the link, so it
is simulated once per structure. Source: `PartitionedParameterCoordinator` in
deepspeed/runtime/zero/partitioned_param_coordinator.py (0.19.8).
"""

from bisect import bisect_left
from collections import defaultdict, deque
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from zeroplan.records import dataclass, field

__all__ = ["Action", "Actions", "Hook", "Structure", "coordinate"]

WARM_UP_STEPS: Final = 3
"""The first micro-step records the trace, the next one fixes what is released; then it repeats."""


class Hook(NamedTuple):
    """A module is about to run (fetch), or has run (release), forward or backward."""

    fetch: bool
    parameters: tuple[int, ...] = ()
    """Places of the parameters that it holds itself."""
    module: int = 0
    """Number of the module in its unit."""
    unit: int = -1
    """The model itself is in none."""


class Action(NamedTuple):
    """What the coordinator does to parameters, known by their places."""

    kind: Literal["gather", "take", "use", "drop", "release"]
    """gather: issue an all-gather; take: copy its parameters out; drop: its flat buffer goes;
    use: the compute stream waits for all gathers so far; release: the parameters go."""
    parameters: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Structure:
    """Everything that the coordinator's decisions depend on."""

    elements: tuple[int, ...]
    """Of each parameter. [elements]"""
    hooks: tuple[Hook, ...]
    """Of one micro-step, in the order in which they fire."""
    micro_steps: int
    prefetch_bucket: int
    max_live: int
    max_reuse_distance: int
    persistence_threshold: int

    @cached_property
    def persistent(self) -> frozenset[int]:
        """Parameters that are gathered after each optimizer step and never released."""
        limit = self.persistence_threshold
        return frozenset(p for p, size in enumerate(self.elements) if size <= limit)


Actions = tuple[tuple[Action, ...], ...]
"""By hook, and last of all at the end of backward."""


@lru_cache(maxsize=64)
def coordinate(structure: Structure) -> tuple[Actions, ...]:
    """Return the actions of each micro-step of a step in steady state."""
    coordinator = _Coordinator(structure)
    steps: list[Actions] = []
    known: dict[frozenset[int], tuple[Actions, frozenset[int]]] = {}
    for _ in range(WARM_UP_STEPS):
        steps = []
        for _ in range(structure.micro_steps):
            start = frozenset(coordinator.available)
            if start in known:
                actions, end = known[start]
                coordinator.available = set(end)
            else:
                cached = bool(coordinator.released)
                actions = coordinator.run()
                if cached:
                    known[start] = actions, frozenset(coordinator.available)
            steps.append(actions)
        coordinator.available = set(structure.persistent)
    return tuple(steps)


@dataclass(slots=True)
class _Use:
    """A parameter in the trace, and the fetch that needs it."""

    parameter: int
    step: int


@dataclass(slots=True)
class _Coordinator:
    """State of the coordinator; names follow DeepSpeed's."""

    structure: Structure
    available: set[int] = field(default_factory=set)
    in_flight: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Parameters being gathered, with all that came in the same all-gather."""
    n_available: int = 0
    step_id: int = 0
    active: defaultdict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """Modules that are using a parameter."""
    queue: deque[_Use] = field(default_factory=deque)
    fetched_for: dict[int, int] = field(default_factory=dict)
    """Last fetch for which a parameter was gathered or found there."""
    complete: bool = False
    released: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """What is released by hook: decided in the first traced micro-step, kept ever after."""
    trace: list[_Use] = field(default_factory=list)
    uses: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    distance: list[int] = field(default_factory=list)
    """Elements of all modules fetched before each step."""
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        fetches = [hook for hook in self.structure.hooks if hook.fetch]
        sizes = []
        for step, hook in enumerate(fetches):
            for parameter in sorted(hook.parameters):
                self.trace.append(_Use(parameter, step))
                self.uses[parameter].append(step)
            sizes.append(sum(self.structure.elements[p] for p in hook.parameters))
        self.distance = list(accumulate(sizes, initial=0))

    def run(self) -> Actions:
        """Run one micro-step."""
        self.queue, self.fetched_for = deque(self.trace), {}
        self.step_id, self.n_available = 0, 0
        done = []
        for index, hook in enumerate(self.structure.hooks):
            self.actions = []
            if hook.fetch:
                self._fetch(hook)
            else:
                self._release(index, hook)
            done.append(tuple(self.actions))
        self.actions = []
        self._release_leftovers()
        self.complete = True
        return (*done, tuple(self.actions))

    def _fetch(self, hook: Hook) -> None:
        """Gather what the module needs, wait for it, then prefetch (`fetch_sub_module`)."""
        self._gather([p for p in hook.parameters if self._missing(p)])
        for parameter in hook.parameters:
            self.active[parameter].add((hook.unit, hook.module))
            if parameter in self.in_flight:
                self._take(parameter)
        self.actions.append(Action("use", hook.parameters))
        if self.complete:
            self._pop_own(hook)
            self._prefetch()
        self.step_id += 1

    def _missing(self, parameter: int) -> bool:
        return parameter not in self.available and parameter not in self.in_flight

    def _gather(self, parameters: list[int]) -> None:
        if not parameters:
            return
        group = tuple(sorted(parameters))
        self.in_flight |= dict.fromkeys(group, group)
        self.n_available += sum(self.structure.elements[p] for p in group)
        self.actions.append(Action("gather", group))

    def _take(self, parameter: int) -> None:
        """Wait for an all-gather; its flat buffer goes when all of its parameters were taken."""
        group = self.in_flight.pop(parameter)
        if parameter not in self.available:
            self.available |= set(group)
            self.actions.append(Action("take", group))
        if not any(self.in_flight.get(p) is group for p in group):
            self.actions.append(Action("drop", group))

    def _pop_own(self, hook: Hook) -> None:
        """Take the module's own parameters off the queue, if no prefetch did."""
        own = {p for p in hook.parameters if self.fetched_for.get(p, -1) < self.step_id}
        popped: set[int] = set()
        while self.queue and len(popped) < len(own):
            use = self.queue.popleft()
            self.fetched_for[use.parameter] = use.step
            popped.add(use.parameter)

    def _prefetch(self) -> None:
        """Gather what comes next; what is there already counts as fetched for its next use."""
        limits = self.structure
        room = min(limits.max_live - self.n_available, limits.prefetch_bucket)
        wanted: dict[int, None] = {}
        size = 0
        while self.queue and size < room:
            use = self.queue.popleft()
            self.fetched_for[use.parameter] = max(self.fetched_for.get(use.parameter, -1), use.step)
            if self._missing(use.parameter) and use.parameter not in wanted:
                wanted[use.parameter] = None
                size += limits.elements[use.parameter]
        self._gather(list(wanted))

    def _release(self, index: int, hook: Hook) -> None:
        chosen = hook.parameters
        if self.complete:
            if index not in self.released:
                self.released[index] = self._to_release(hook)
            chosen = self.released[index]
        for parameter in hook.parameters:
            self.active[parameter].discard((hook.unit, hook.module))
        self._drop([p for p in chosen if p in self.available and not self.active[p]])

    def _to_release(self, hook: Hook) -> tuple[int, ...]:
        """Choose what goes: not what persists, was prefetched for later, or comes again soon."""
        return tuple(
            p
            for p in hook.parameters
            if p not in self.structure.persistent
            and self.fetched_for.get(p, -1) <= self.step_id
            and not self._reused_soon(p)
        )

    def _reused_soon(self, parameter: int) -> bool:
        uses = self.uses[parameter]
        at = bisect_left(uses, self.step_id)
        if at == len(uses):
            return False
        apart = self.distance[uses[at]] - self.distance[self.step_id]
        return apart < self.structure.max_reuse_distance

    def _release_leftovers(self) -> None:
        """Release parameters of modules whose input needs no gradient: no hook follows them."""
        left = [p for p in list(self.active) if self.active[p]]
        self.active.clear()
        self._drop([p for p in left if p in self.available and p not in self.structure.persistent])

    def _drop(self, parameters: list[int]) -> None:
        if parameters:
            self.available -= set(parameters)
            self.n_available -= sum(self.structure.elements[p] for p in parameters)
            self.actions.append(Action("release", tuple(parameters)))
