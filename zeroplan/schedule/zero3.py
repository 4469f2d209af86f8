"""ZeRO-3: parameters are gathered by the module, gradients reduce-scattered by the bucket.

Source: deepspeed/runtime/zero/stage3.py, parameter_offload.py (0.19.8).
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import (
    FP32,
    FP64,
    accumulation_itemsize,
    collective,
    flat_parameters,
    numbered,
    transient,
)
from zeroplan.schedule.events import Recorder, Script
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.zero3_coordinator import Action, Actions, Hook, Structure, coordinate
from zeroplan.schedule.zero3_gradients import Gradients
from zeroplan.schedule.zero3_modules import TIED, Run, UnitItem, unit_backward, unit_forward
from zeroplan.schedule.zero3_parameters import Parameters
from zeroplan.units import round_up
from zeroplan.workload.changes import Change

__all__ = ["zero3_script"]

ROOT: Final = Hook(fetch=True)
"""The whole model, whose hook comes first in forward and in backward."""


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    parameters: Parameters
    gradients: Gradients
    known: dict[tuple[int, str, bool], list[UnitItem]] = field(default_factory=dict)
    """Hooks and runs by unit, checkpointing and direction: equal blocks share them."""

    def items(self, index: int, *, forward: bool) -> list[UnitItem]:
        """Return a unit's hooks and the runs of operations between them."""
        key = (id(self.plan.units[index]), self.plan.checkpointing(index), forward)
        if key not in self.known:
            self.known[key] = (unit_forward if forward else unit_backward)(self.plan, index)
        return self.known[key]

    def sub_groups(self) -> list[list[int]]:
        """Deal parameters to what is updated at once; a group closes when it has its size.

        Source: `_create_fp16_sub_groups`.
        """
        groups: list[list[int]] = [[]]
        size, limit = 0, self.plan.choice.deepspeed.sub_group_size
        for place in range(len(self.parameters.elements)):
            groups[-1].append(self.parameters.shard(place))
            size += groups[-1][-1]
            if size >= limit:
                groups.append([])
                size = 0
        return groups if groups[-1] else groups[:-1]


def zero3_script(plan: Plan) -> Script:
    """Write one steady-state step of ZeRO-3 down."""
    elements = tuple(p.elements for p in flat_parameters(plan))
    recorder = Recorder()
    parameters = Parameters(plan, recorder, elements)
    step = _Step(plan, recorder, parameters, Gradients(plan, recorder, elements))
    structure = _structure(step)
    parameters.keep(structure.persistent)
    resident = _resident(step)
    for _, equal in groupby(coordinate(structure), key=id):
        passes = list(equal)
        with recorder.repeat(len(passes)):
            _micro_step(step, passes[0])
    _update(step)
    for place in sorted(structure.persistent):
        parameters.gather("persistent parameters", (place,))
    return Script(resident=resident, items=tuple(recorder.items))


def _structure(step: _Step) -> Structure:
    """List the hooks of a micro-step: the root's, then each unit's, forward and backward."""
    plan, settings = step.plan, step.plan.choice.deepspeed
    tied = next((i for i, p in enumerate(flat_parameters(plan)) if p.role == "embedding"), 0)
    hooks = []
    for forward in (True, False):
        hooks.append(ROOT)
        for index, start in numbered(plan, forward=forward):
            for item in step.items(index, forward=forward):
                if isinstance(item, Hook):
                    places = tuple(tied if p == TIED else start + p for p in item.parameters)
                    hooks.append(item._replace(parameters=places, unit=index))
    return Structure(
        elements=step.parameters.elements,
        hooks=tuple(hooks),
        micro_steps=plan.micro_steps,
        prefetch_bucket=settings.stage3_prefetch_bucket_size,
        max_live=settings.stage3_max_live_parameters,
        max_reuse_distance=settings.stage3_max_reuse_distance,
        persistence_threshold=settings.stage3_param_persistence_threshold,
    )


def _resident(step: _Step) -> tuple[Change, ...]:
    plan, held = step.plan, step.plan.dtypes
    groups = [sum(shards) for shards in step.sub_groups()]
    persistent = sum(step.parameters.whole.values())
    accumulated = round_up(sum(groups) * accumulation_itemsize(plan))
    return (
        Change("parameters", "parameter shards", round_up(sum(groups) * held.parameter)),
        Change("unsharded_parameters", "persistent parameters", persistent),
        Change("gradients", "gradient shards", accumulated),
        Change("reduce_scatter_buffers", "bucket", step.gradients.bucket_bytes),
        *state_changes([(size, 1) for size in groups], held),
        *inputs_and_buffers(plan),
    )


def _micro_step(step: _Step, actions: Actions) -> None:
    left = iter(actions)
    for forward in (True, False):
        step.recorder.phase = "forward" if forward else "backward"
        _direction(step, left, forward=forward)
    step.gradients.reduce()
    step.recorder.emit("end of backward", "gradients", waits=(step.gradients.stream,))
    step.parameters.act("root", next(left))
    step.parameters.used("root", list(step.parameters.saved))


def _direction(step: _Step, left: Iterator[tuple[Action, ...]], *, forward: bool) -> None:
    """Run forward or backward; the root's hook comes with the first one of a unit."""
    plan, recorder, parameters, root = step.plan, step.recorder, step.parameters, True
    for index, start in numbered(plan, forward=forward):
        recorder.block, owner = plan.block_numbers[index], plan.owner(index)
        for item in step.items(index, forward=forward):
            if isinstance(item, Run):
                _run(step, owner, item, start)
            elif isinstance(item, Hook):
                if root:
                    parameters.act("root", next(left))
                root = False
                parameters.act(owner, next(left))
            else:
                parameters.recomputing = item == "recompute"
    recorder.block = None


def _run(step: _Step, owner: str, run: Run, start: int) -> None:
    step.recorder.compute(step.recorder.phase, owner, run.part)
    places = [start + place for place in run.gradients]
    step.parameters.used(owner, places)
    for place in places:
        step.gradients.arrive(place)


def _update(step: _Step) -> None:
    """Release all parameters, take the norm, update sub-group by sub-group."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    ranks, accumulated = plan.groups.shard, accumulation_itemsize(plan)
    recorder.phase = "optimizer"
    step.parameters.release("parameters", list(step.parameters.whole))
    if plan.training.compute_dtype == "fp16":
        _check_overflow(step)
    groups = step.sub_groups()
    for shards in groups:
        recorder.emit(
            "gradient norm",
            "optimizer",
            changes=transient("temporaries", "fp64 gradient", round_up(max(shards) * FP64)),
            collective=collective("all_reduce", ranks, FP64, FP64),
            traffic_bytes=sum(shards) * (accumulated + 2 * FP64),
        )
    for shards in groups:
        size = sum(shards)
        alone, wide = len(shards) == 1, accumulated == FP32
        flat = 0 if alone or wide else round_up(size * accumulated)
        fp32 = 0 if alone and wide else round_up(size * FP32)
        cast = transient("gradients", "flat part", flat)
        recorder.emit(
            "fp32 part",
            "optimizer",
            changes=(*cast[:1], Change("gradients", "fp32 part", fp32), *cast[1:]),
            traffic_bytes=size * (3 * accumulated + FP32),
        )
        torch_optimizer_step(recorder, [(size, 1)], held)
        gone = Change("gradients", "fp32 part", -fp32)
        recorder.emit("drop fp32 part", "optimizer", changes=(gone,))


def _check_overflow(step: _Step) -> None:
    """Look for infinities in all gradient shards at once: their magnitudes, then a flag each."""
    shards = sum(sum(group) for group in step.sub_groups())
    magnitudes = round_up(shards * accumulation_itemsize(step.plan))
    step.recorder.emit(
        "check overflow",
        "optimizer",
        changes=transient("temporaries", "overflow", magnitudes, round_up(shards)),
        collective=collective("all_reduce", step.plan.groups.shard, 1, 1),
        traffic_bytes=3 * magnitudes + 2 * shards,
    )
