"""ZeRO-3: parameters are gathered by the module, gradients reduce-scattered by the bucket.

Source: deepspeed/runtime/zero/stage3.py, partition_parameters.py, parameter_offload.py and
deepspeed/runtime/comm/coalesced_collectives.py (0.19.8).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from zeroplan.schedule.deepspeed_common import (
    FP32,
    FP64,
    accumulation_itemsize,
    collective,
    transient,
    wire_itemsize,
)
from zeroplan.schedule.events import CollectiveName, Recorder, Script, Stream
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.zero3_coordinator import Action, Hook, Structure, coordinate
from zeroplan.schedule.zero3_modules import TIED, Item, Run, unit_backward, unit_forward
from zeroplan.sharding.layout import unique
from zeroplan.units import round_up
from zeroplan.workload.liveness import Change

__all__ = ["zero3_script"]

ROOT = Hook(-1, fetch=True, parameters=())
"""The whole model, whose hooks come first in forward and in backward."""
MODULES_PER_UNIT = 10_000
"""More than a unit has."""


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    elements: tuple[int, ...]
    bases: tuple[int, ...]
    """Place of each unit's first parameter."""
    known: dict[tuple[int, str, bool], list[Item]] = field(default_factory=dict)
    """Hooks and runs by unit, checkpointing and direction: equal blocks share them."""
    gathered: dict[int, int] = field(default_factory=dict)
    """Parameters that are there. [B]"""
    gather_event: int | None = None
    """The newest all-gather that the compute stream has to wait for."""
    members: list[int] = field(default_factory=list)
    """Places of what the gradient bucket holds."""
    standing: dict[int, int] = field(default_factory=dict)
    """Gradients that did not fit into the bucket. [B]"""
    reductions: list[int] = field(default_factory=list)
    computed: int = 0
    """The newest event of the compute stream."""

    def stream(self, name: Stream) -> Stream:
        """Return a stream, or the compute stream where nothing overlaps (`overlap_comm`)."""
        return "compute" if self.plan.choice.deepspeed.overlap_comm is False else name

    def shard(self, place: int) -> int:
        """Elements of one rank's part of a parameter."""
        return int(-(-self.elements[place] // self.plan.groups.shard.ranks))

    def order(self, *, forward: bool) -> list[int]:
        """Units in the order in which they run."""
        units = range(len(self.plan.units))
        return list(units if forward else reversed(units))

    def items(self, index: int, *, forward: bool) -> list[Item]:
        """Return a unit's hooks and the runs of operations between them."""
        key = (id(self.plan.units[index]), self.plan.checkpointing(index), forward)
        if key not in self.known:
            self.known[key] = (unit_forward if forward else unit_backward)(self.plan, index)
        return self.known[key]

    def place(self, index: int, hook: Hook) -> Hook:
        """Make a unit's hook one of the model's."""
        base = self.bases[index]
        places = tuple(self.tied if p == TIED else base + p for p in hook.parameters)
        return Hook(index * MODULES_PER_UNIT + hook.module, hook.fetch, places)

    @property
    def tied(self) -> int:
        """Place of the token embedding, whose storage a tied head shares."""
        return next(i for i, p in enumerate(self.plan.parameters) if p.role == "embedding")

    @property
    def sub_groups(self) -> list[list[int]]:
        """Parameters that are updated at once: a group closes when it reaches its size."""
        groups: list[list[int]] = [[]]
        limit = self.plan.choice.deepspeed.sub_group_size
        for place in range(len(self.elements)):
            groups[-1].append(place)
            if sum(self.shard(p) for p in groups[-1]) >= limit:
                groups.append([])
        return groups if groups[-1] else groups[:-1]

    def compute(self, owner: str, run: Run) -> None:
        """Run operations once the parameters are there."""
        waits = () if self.gather_event is None else (self.gather_event,)
        self.gather_event = None
        self.computed = self.recorder.compute(self.recorder.phase, owner, run.part, waits)

    def act(self, owner: str, actions: tuple[Action, ...]) -> None:
        """Do what the coordinator decided at a hook."""
        fetched = False
        for action in actions:
            if action.kind == "gather":
                self._gather(owner, action.parameters)
            elif action.kind == "wait":
                self._copy_out(owner, action.parameters)
            elif action.kind == "drop":
                self._drop(owner, action.parameters)
            else:
                self._release(owner, action.parameters)

    def _whole(self, place: int) -> int:
        return self.shard(place) * int(self.plan.groups.shard.ranks) * self.plan.dtypes.parameter

    def _flat(self, places: tuple[int, ...]) -> int:
        return int(round_up(sum(self._whole(p) for p in places)))

    def gather_persistent(self, places: Iterable[int]) -> None:
        for place in places:
            self.gathered[place] = int(round_up(self._whole(place)))

    def _gather(self, owner: str, places: tuple[int, ...]) -> None:
        """Gather into one flat buffer, which is the parameter itself if there is but one."""
        group, flat = self.plan.groups.shard, self._flat(places)
        if len(places) == 1:
            self.gathered[places[0]] = flat
            change = Change("unsharded_parameters", owner, flat)
        else:
            change = Change("all_gather_buffers", owner, flat)
        size = sum(self._whole(p) for p in places)
        self.gather_event = self.recorder.emit(
            "all-gather",
            owner,
            stream=self.stream("all-gather"),
            changes=(change,),
            collective=collective("all_gather", group, size // group.ranks, size),
        )

    def _copy_out(self, owner: str, places: tuple[int, ...]) -> None:
        if len(places) == 1:
            return
        for place in places:
            size = self.elements[place] * self.plan.dtypes.parameter
            self.gathered[place] = int(round_up(size))
        changes = [Change("unsharded_parameters", owner, self.gathered[p]) for p in places]
        self.recorder.emit(
            "copy out",
            owner,
            stream=self.stream("all-gather"),
            changes=tuple(changes),
            traffic_bytes=2 * sum(c.bytes for c in changes),
        )

    def _drop(self, owner: str, places: tuple[int, ...]) -> None:
        if len(places) > 1:
            gone = Change("all_gather_buffers", owner, -self._flat(places))
            self.recorder.emit("drop gathered", owner, changes=(gone,))

    def _release(self, owner: str, places: Iterable[int]) -> None:
        gone = sum(self.gathered.pop(p) for p in places)
        self.recorder.emit(
            "release", owner, changes=(Change("unsharded_parameters", owner, -gone),)
        )

    def arrive(self, place: int) -> None:
        """Copy a fresh gradient into the bucket; one that is larger waits where it is."""
        elements, settings = self.elements[place], self.plan.choice.deepspeed
        filled = sum(self.elements[p] for p in self.members)
        if self.members and filled + elements > settings.reduce_bucket_size:
            self.reduce()
            filled = 0
        self.members.append(place)
        size = int(round_up(elements * self.plan.dtypes.compute))
        if settings.contiguous_gradients and filled + elements <= settings.reduce_bucket_size:
            self.recorder.emit(
                "copy to bucket",
                "gradients",
                stream=self.stream("reduce-scatter"),
                changes=(Change("unsharded_gradients", "gradient", -size),),
                traffic_bytes=2 * size,
                waits=(self.computed,),
            )
        else:
            self.standing[place] = size

    def reduce(self) -> None:
        """Reduce the bucket and add this rank's parts to the gradient shards."""
        if not self.members:
            return
        group, settings = self.plan.groups.shard, self.plan.choice.deepspeed
        wire, kept = wire_itemsize(self.plan), accumulation_itemsize(self.plan)
        elements = sum(self.elements[p] for p in self.members)
        parts = sum(self.shard(p) for p in self.members)
        fits = elements <= settings.reduce_bucket_size
        changes: tuple[Change, ...] = ()
        if settings.contiguous_gradients and fits and not settings.reduce_scatter:
            name: CollectiveName = "all_reduce"
            sent = received = elements * wire
            cast = round_up(elements * kept) if kept != wire else 0
            changes = transient("reduce_scatter_buffers", "bucket", cast)
        else:
            name, sent, received = "reduce_scatter", parts * group.ranks * wire, parts * wire
            alone = len(self.members) == 1 and not elements % group.ranks
            flat = 0 if alone else round_up(sent)
            casts = [round_up(self.shard(p) * kept) for p in self.members] if kept != wire else []
            changes = transient("reduce_scatter_buffers", "bucket", flat, *casts)
        gone = tuple(Change("unsharded_gradients", "gradient", -s) for s in self.standing.values())
        self.standing.clear()
        self.members = []
        self.reductions.append(
            self.recorder.emit(
                name.replace("_", "-"),
                "bucket",
                stream=self.stream("reduce-scatter"),
                changes=changes + gone,
                collective=collective(name, group, sent, received),
                waits=(self.computed,),
            )
        )


def zero3_script(plan: Plan) -> Script:
    """Write one steady-state step of ZeRO-3 down."""
    bases, count = [], 0
    for unit in plan.units:
        bases.append(count)
        count += len(unique(unit.parameters))
    step = _Step(plan, Recorder(), tuple(p.elements for p in plan.parameters), tuple(bases))
    structure = _structure(step)
    step.gather_persistent(structure.persistent)
    resident = _resident(step)
    for actions in coordinate(structure):
        _micro_step(step, iter(actions))
    _update(step, structure.persistent)
    return Script(resident=resident, events=tuple(step.recorder.events))


def _structure(step: _Step) -> Structure:
    """List the hooks of a micro-step: the root's, then each unit's, forward and backward."""
    plan, settings = step.plan, step.plan.choice.deepspeed
    hooks = []
    for forward in (True, False):
        hooks.append(ROOT)
        for index in step.order(forward=forward):
            hooks += [
                step.place(index, i)
                for i in step.items(index, forward=forward)
                if isinstance(i, Hook)
            ]
    return Structure(
        elements=step.elements,
        hooks=tuple(hooks),
        micro_steps=plan.micro_steps,
        prefetch_bucket=settings.stage3_prefetch_bucket_size,
        max_live=settings.stage3_max_live_parameters,
        max_reuse_distance=settings.stage3_max_reuse_distance,
        persistence_threshold=settings.stage3_param_persistence_threshold,
    )


def _resident(step: _Step) -> tuple[Change, ...]:
    plan, held = step.plan, step.plan.dtypes
    shards = [step.shard(place) for place in range(len(step.elements))]
    groups = [sum(shards[place] for place in group) for group in step.sub_groups]
    persistent = sum(step.gathered.values())
    bucket = plan.choice.deepspeed.reduce_bucket_size * wire_itemsize(plan)
    if not plan.choice.deepspeed.contiguous_gradients:
        bucket = 0
    return (
        Change("parameters", "parameter shards", round_up(sum(shards) * held.parameter)),
        Change("unsharded_parameters", "persistent parameters", persistent),
        Change("gradients", "gradient shards", round_up(sum(shards) * accumulation_itemsize(plan))),
        Change("reduce_scatter_buffers", "bucket", round_up(bucket)),
        *state_changes(groups, held),
        *inputs_and_buffers(plan),
    )


def _micro_step(step: _Step, actions: Iterator[tuple[Action, ...]]) -> None:
    plan, recorder = step.plan, step.recorder
    for forward in (True, False):
        recorder.phase = "forward" if forward else "backward"
        root = True
        for index in step.order(forward=forward):
            owner = plan.owner(index)
            for item in step.items(index, forward=forward):
                if isinstance(item, Hook):
                    if root:
                        step.act("root", next(actions))
                        root = False
                    step.act(owner, next(actions))
                    continue
                step.compute(owner, item)
                for place in item.gradients:
                    step.arrive(step.bases[index] + place)
    step.reduce()
    recorder.emit("end of backward", "gradients", waits=step.reductions)
    step.reductions = []
    step.act("root", next(actions))


def _update(step: _Step, persistent: frozenset[int]) -> None:
    """Release all parameters, take the norm, update by the sub-group, gather what persists."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    group, accumulated = plan.groups.shard, accumulation_itemsize(plan)
    recorder.phase = "optimizer"
    step._release("parameters", list(step.gathered))
    if plan.training.compute_dtype == "fp16":
        recorder.emit(
            "check overflow", "optimizer", collective=collective("all_reduce", group, 1, 1)
        )
    for places in step.sub_groups:
        norm = max(step.shard(p) for p in places) * FP64
        recorder.emit(
            "gradient norm",
            "optimizer",
            changes=transient("temporaries", "fp64 gradient", round_up(norm)),
            collective=collective("all_reduce", group, FP64, FP64),
        )
    for places in step.sub_groups:
        size = sum(step.shard(p) for p in places)
        flat = round_up(size * accumulated) if len(places) > 1 and accumulated != FP32 else 0
        wide = round_up(size * FP32) if len(places) > 1 or accumulated != FP32 else 0
        cast = (
            Change("gradients", "flat part", flat),
            Change("gradients", "fp32 part", wide),
            Change("gradients", "flat part", -flat),
        )
        recorder.emit("fp32 gradients", "optimizer", changes=cast, traffic_bytes=10 * size)
        torch_optimizer_step(recorder, [size], held)
        recorder.emit(
            "drop gradients", "optimizer", changes=(Change("gradients", "fp32 part", -wide),)
        )
    for place in sorted(persistent):
        step._gather("persistent parameters", (place,))
