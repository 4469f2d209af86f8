"""Where ZeRO-3's module hooks fire between the operations of a unit.

DeepSpeed hooks every `nn.Module`: leaves, which hold the parameters, and those that contain them,
whose hooks prefetch as well. Source: `_register_deepspeed_module` in
deepspeed/runtime/zero/parameter_offload.py (0.19.8).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Segment, segment
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.zero3_structure import Hook
from zeroplan.sharding.layout import unique
from zeroplan.workload.autograd import backward
from zeroplan.workload.changes import Step
from zeroplan.workload.liveness import forward, recompute
from zeroplan.workload.model import Unit
from zeroplan.workload.tape import Operation, Parameter

__all__ = ["TIED", "Run", "UnitItem", "unit_backward", "unit_forward"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Operations between two hooks, and the places of the parameters that they are done with."""

    part: Segment
    gradients: tuple[int, ...] = ()
    frozen: tuple[int, ...] = ()
    """Places of parameters without a gradient that they used for the last time."""


UnitItem = Hook | Run | Literal["recompute", "recomputed"]
"""Two words stand around what a checkpoint recomputes and then holds until it is used."""
TIED: Final = -1
"""Place of a parameter whose storage is another unit's."""
UNIT: Final = ""
"""Path of the unit's own module."""


def unit_forward(plan: Plan, index: int) -> list[UnitItem]:
    """Cut a unit's forward at its hooks."""
    unit = plan.units[index]
    return list(_Walk(unit).forward(forward(unit, plan.checkpointing(index))))


def unit_backward(plan: Plan, index: int) -> list[UnitItem]:
    """Cut a unit's backward at its hooks, recomputation included.

    The reentrant checkpoint recomputes before anything; the other one when the first operation
    asks for what it saved, and stops inside the last that saves, whose module thus never ends.
    """
    unit, mode = plan.units[index], plan.checkpointing(index)
    if not unit.output.differentiable:  # at most a sum over the blocks ends here
        ending = segment(backward(unit))
        return [Run(part=ending)] if ending.changes else []
    walk, reentrant = _Walk(unit), plan.training.checkpoint_reentrant
    steps = backward(unit, mode, reentrant=reentrant)
    if mode == "none":
        return list(walk.backward(steps))
    again = recompute(unit, mode, reentrant=reentrant)
    if reentrant:
        return [*_Walk(unit).forward(again), *walk.backward(steps)]
    last = max((i for i, operation in enumerate(unit.operations) if operation.keeps), default=-1)
    recomputed = list(_Walk(unit, stop=last).forward(again))
    return list(walk.backward(steps, recomputed))


@dataclass(slots=True)
class _Walk:
    """Walks a unit's operations and opens and closes modules as they come."""

    unit: Unit
    stop: int | None = None
    """Operation inside which a recomputation stops."""
    places: dict[int, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    """Numbers of the unit's modules by path."""
    own: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Parameters of each module itself."""
    open: list[str] = field(default_factory=list)
    frozen: frozenset[int] = frozenset()
    """Places of parameters without a gradient."""
    attributed: str | None = None
    """Module whose backward asked for the recomputation."""
    recomputed: tuple[int, ...] = ()
    """Frozen parameters that came for it: they are released with that module, come what may
    (`ds_recompute_parameters`)."""

    def __post_init__(self) -> None:
        owned = unique(self.unit.parameters)
        self.places = {id(parameter): place for place, parameter in enumerate(owned)}
        self.frozen = frozenset(p for p, each in enumerate(owned) if not each.trainable)
        held: dict[str, tuple[int, ...]] = {}
        for operation in self.unit.operations:
            places = tuple(self._place(p) for p in operation.parameters)
            for path in _paths(operation):
                held.setdefault(path, ())
            held[operation.module] = held.get(operation.module, ()) + places
        if self.unit.kind != "block" and not held.get(UNIT):
            held.pop(UNIT, None)
        self.own = held
        self.modules = {path: number for number, path in enumerate(held)}

    def _place(self, parameter: Parameter) -> int:
        return self.places.get(id(parameter), TIED)

    def _hook(self, path: str, *, fetch: bool) -> Hook:
        return Hook(fetch, self.own[path], self.modules[path])

    def _enter(self, operation: Operation) -> Iterator[Hook]:
        """Leave the modules that this operation is outside of, enter those around it."""
        if not operation.module and self.open:
            return
        paths = [path for path in _paths(operation) if path in self.own]
        yield from self._leave(keep=paths)
        for path in paths[len(self.open) :]:
            self.open.append(path)
            yield self._hook(path, fetch=True)

    def _leave(self, keep: Iterable[str] = ()) -> Iterator[Hook]:
        keep = list(keep)
        while self.open != keep[: len(self.open)]:
            yield self._released(self.open.pop())

    def _attribute(self, recomputed: list[UnitItem]) -> None:
        """Let the module that now runs backward release what a recomputation brought."""
        came = [p for item in recomputed if isinstance(item, Hook) for p in item.parameters]
        self.attributed = self.open[-1] if self.open else None
        self.recomputed = tuple(p for p in dict.fromkeys(came) if p in self.frozen)

    def _released(self, path: str) -> Hook:
        hook = self._hook(path, fetch=False)
        if path != self.attributed:
            return hook
        self.attributed = None
        return hook._replace(recomputed=self.recomputed)

    def forward(self, steps: list[Step]) -> Iterator[UnitItem]:
        """Cut a forward run: each leaf ends with its operation."""
        run: list[Step] = []
        ends = _ends(steps)
        for index, step in enumerate(steps):
            hooks = list(self._enter(step.operation))
            if hooks:
                yield from _flush(run)
                yield from hooks
            run.append(step)
            if index == self.stop and step.operation is self.unit.operations[index]:
                yield Run(part=segment([*run, *steps[index + 1 :]]))
                return
            if index in ends:
                yield from _flush(run)
                yield self._hook(self.open.pop(), fetch=False)
        yield from _flush(run)
        if self.stop is not None:
            yield from self._enter(self.unit.operations[self.stop])
            return
        yield from self._leave()

    def backward(
        self, steps: list[Step], recomputed: list[UnitItem] | None = None
    ) -> Iterator[UnitItem]:
        """Cut a backward run; recomputation comes before the first operation that saved."""
        run: list[Step] = []
        waiting, ends = recomputed, _ends(steps)
        for index, step in enumerate(steps):
            hooks = list(self._enter(step.operation))
            if hooks:
                yield from _flush(run)
                yield from hooks
            if waiting is not None and step.operation.keeps:
                yield from _flush(run)
                yield "recompute"
                yield from waiting
                yield "recomputed"
                self._attribute(waiting)
                waiting = None
            run.append(step)
            if step.gradients or step.operation.module:
                places = tuple(self._place(parameter) for parameter in step.gradients)
                frozen = (p for p in step.operation.parameters if not p.trainable)
                done = tuple(self._place(parameter) for parameter in frozen)
                yield Run(part=segment(run), gradients=places, frozen=done)
                run.clear()
            if index in ends:
                leaf = self.open.pop()
                if any(tensor.differentiable for tensor in step.operation.inputs):
                    yield self._released(leaf)
        yield from _flush(run)
        if self.unit.input is not None and self.unit.input.differentiable:
            yield from self._leave()


def _ends(steps: list[Step]) -> frozenset[int]:
    """Return the steps with which a leaf module ends: experts in one module are several products."""
    named = [(index, step.operation.module) for index, step in enumerate(steps)]
    named = [(index, module) for index, module in named if module]
    after = [module for _, module in named[1:]]
    return (
        frozenset(
            index
            for (index, module), then in zip(named, [*after, ""], strict=True)
            if module != then
        )
        if named
        else frozenset()
    )


def _flush(run: list[Step]) -> Iterator[Run]:
    if run:
        yield Run(part=segment(run))
        run.clear()


def _paths(operation: Operation) -> list[str]:
    """Return the modules around an operation, from the unit inwards; norms are no part of them."""
    if not operation.module:
        return [UNIT]
    names = operation.module.split(".")
    outer = [] if names[-1] in ("norm", "post_norm", "residual_norm") else names[:-1]
    around = [".".join(outer[: depth + 1]) for depth in range(len(outer))]
    return [UNIT, *around, operation.module]
