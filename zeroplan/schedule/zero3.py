"""ZeRO-3: parameters are gathered by the module, gradients reduce-scattered by the bucket.

Source: deepspeed/runtime/zero/stage3.py, parameter_offload.py (0.19.8).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from zeroplan.records import dataclass, field, replace
from zeroplan.schedule.deepspeed_common import (
    Copies,
    Gradient,
    accumulation_itemsize,
    flat_parameters,
    in_running_order,
    unit_starts,
)
from zeroplan.schedule.events import Recorder, Script
from zeroplan.schedule.optimizer import state_changes
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.stretches import periods
from zeroplan.schedule.zero3_course import coordinate
from zeroplan.schedule.zero3_gradients import Gradients
from zeroplan.schedule.zero3_host import host_buffers, nvme_bytes, on_drive
from zeroplan.schedule.zero3_mics import PlacedParameters
from zeroplan.schedule.zero3_modules import TIED, Run, UnitItem, unit_backward, unit_forward
from zeroplan.schedule.zero3_parameters import Parameters
from zeroplan.schedule.zero3_quantized_weights import QuantizedParameters
from zeroplan.schedule.zero3_structure import Action, Actions, Hook, Lap, Laps, Structure
from zeroplan.schedule.zero3_update import sub_groups, update
from zeroplan.sharding.optimizer_states import vector
from zeroplan.units import round_up
from zeroplan.workload.changes import Change

__all__ = ["zero3_script"]

ROOT: Final = Hook(fetch=True)
"""The whole model, whose hook comes first in forward and in backward."""


Acted = tuple[Action, ...]


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    parameters: Parameters
    gradients: Gradients
    fresh: tuple[Gradient, ...]
    """Of each parameter."""
    starts: tuple[int, ...]
    """Place of each unit's first parameter."""
    tied: int
    """Place of the parameter whose storage the head may share."""
    sub_groups: list[list[int]]
    """Shards of the parameters that are updated at once. [elements]"""
    frozen_bytes: int
    """Shards of those that are not trained, each in a storage of its own. [B]"""
    known: dict[tuple[int, str, bool], list[UnitItem]] = field(default_factory=dict)
    """Hooks and runs by unit, checkpointing and direction: equal blocks share them."""

    def items(self, index: int, *, forward: bool) -> list[UnitItem]:
        """Return a unit's hooks and the runs of operations between them."""
        key = (id(self.plan.units[index]), self.plan.checkpointing(index), forward)
        if key not in self.known:
            self.known[key] = (unit_forward if forward else unit_backward)(self.plan, index)
        return self.known[key]


def zero3_script(plan: Plan) -> Script:
    """Write one steady-state step of ZeRO-3 down."""
    owned = flat_parameters(plan)
    form = {id(p): Gradient(p.elements, p.shape) for p in owned}
    fresh, roles = tuple([form[id(p)] for p in owned]), [p.role for p in owned]
    recorder = Recorder()
    parameters = _kind_of_parameters(plan)(plan, recorder, tuple([each.elements for each in fresh]))
    shards = (parameters.shard(place) for place, p in enumerate(owned) if p.trainable)
    frozen = (parameters.shard(place) for place, p in enumerate(owned) if not p.trainable)
    step = _Step(
        plan=plan,
        recorder=recorder,
        parameters=parameters,
        gradients=Gradients(plan, recorder),
        fresh=fresh,
        starts=unit_starts(plan),
        tied=roles.index("embedding") if "embedding" in roles else 0,
        sub_groups=sub_groups(shards, plan.choice.deepspeed.sub_group_size),
        frozen_bytes=int(sum(round_up(size * plan.dtypes.parameter) for size in frozen)),
    )
    away = sum(on_drive(plan, step.sub_groups))
    parameters.drive_share = away / (sum(map(sum, step.sub_groups)) or 1)
    structure = _structure(step)
    resident = _resident(step, structure.persistent)
    course = coordinate(structure)
    for times, laps in _passes(step, course.micro_steps):
        with recorder.repeat(times, micro_steps=True):
            _micro_step(step, laps)
    recorder.phase = "optimizer"
    parameters.act("parameters", course.left)
    update(plan, recorder, step.sub_groups)
    _gather_persistent(step, structure.persistent)
    parameters.drop_secondary()
    return Script(
        resident=resident,
        items=tuple(recorder.items),
        host=tuple(host_buffers(plan, step.sub_groups)) if plan.offload else (),
        nvme_bytes=nvme_bytes(plan, step.sub_groups),
    )


def _passes(step: _Step, micro_steps: Sequence[Laps]) -> Iterator[tuple[int, Laps]]:
    """Yield how often equal micro-steps happen, with what is done in each.

    Where gradients go to the host, or copies of the shards are averaged (MiCS), the first and the
    last one stand apart.
    """
    for _, equal in groupby(enumerate(micro_steps), key=lambda pair: id(pair[1])):
        passes = [place for place, _ in equal]
        laps = micro_steps[passes[0]]
        last = len(micro_steps) - 1
        cuts = [passes]
        if step.plan.offload.optimizer != "none" or step.plan.groups.replicate.ranks > 1:
            cuts = [[p for p in passes if p == 0 < last], [p for p in passes if 0 < p < last]]
            cuts.append([p for p in passes if p == last])
        for cut in cuts:
            if cut:
                step.gradients.boundary = cut[-1] == last
                step.gradients.accumulates = cut[0] > 0
                yield len(cut), laps


def _kind_of_parameters(plan: Plan) -> type[Parameters]:
    settings = plan.choice.deepspeed
    if settings.mics_shard_size is not None:
        return PlacedParameters
    return QuantizedParameters if settings.zero_quantized_weights else Parameters


def _gather_persistent(step: _Step, persistent: frozenset[int]) -> None:
    for copies in in_running_order(step.plan, forward=True):
        with step.recorder.repeat(copies.times):
            for index in copies.units:
                for place in range(step.starts[index], step.starts[index + 1]):
                    if place in persistent:
                        step.parameters.gather("persistent parameters", (place,))
    step.parameters.drop_sent("persistent parameters", persistent)


def _structure(step: _Step) -> Structure:
    """List the hooks of a micro-step: the root's, then each unit's, forward and backward."""
    plan, settings = step.plan, step.plan.choice.deepspeed
    laps = []
    for forward in (True, False):
        laps.append(Lap((ROOT,)))
        laps += [_lap(step, copies) for copies in in_running_order(plan, forward=forward)]
    return Structure(
        elements=step.parameters.elements,
        laps=tuple(laps),
        micro_steps=plan.micro_steps,
        prefetch_bucket=settings.stage3_prefetch_bucket_size,
        max_live=settings.stage3_max_live_parameters,
        max_reuse_distance=settings.stage3_max_reuse_distance,
        persistence_threshold=settings.stage3_param_persistence_threshold,
        secondary=plan.groups.secondary.ranks > 1,
    )


def _lap(step: _Step, copies: Copies) -> Lap:
    first = min(copies.units)
    start, end = step.starts[first], step.starts[first + abs(copies.stride)]
    shift = end - start if copies.stride > 0 else start - end
    return Lap(tuple(_hooks(step, copies)), copies.times, start, shift)


def _hooks(step: _Step, copies: Copies) -> Iterator[Hook]:
    """Yield the hooks of a first copy; both directions know a unit by its place in forward."""
    forward = copies.stride > 0
    later = 0 if forward else (copies.times - 1) * copies.stride
    for index in copies.units:
        start = step.starts[index]
        for item in step.items(index, forward=forward):
            if isinstance(item, Hook):
                places = tuple([step.tied if p == TIED else start + p for p in item.parameters])
                again = tuple([start + p for p in item.recomputed])
                yield Hook(item.fetch, places, item.module, index + later, again)


def _resident(step: _Step, persistent: frozenset[int]) -> tuple[Change, ...]:
    plan, held = step.plan, step.plan.dtypes
    groups = [sum(shards) for shards in step.sub_groups]
    whole = sum(step.parameters.whole_bytes(place, alone=True) for place in persistent)
    shards = Change("parameters", "parameter shards", round_up(sum(groups) * held.parameter))
    accumulated = round_up(sum(groups) * accumulation_itemsize(plan))
    frozen = Change("parameters", "frozen shards", step.frozen_bytes)
    states = [
        Change("gradients", "gradient shards", accumulated),
        *state_changes([vector(size) for size in groups], held),
    ]
    return (
        *([shards, frozen] if plan.offload.parameters == "none" else []),
        Change("unsharded_parameters", "persistent parameters", whole),
        Change("reduce_scatter_buffers", "bucket", step.gradients.bucket_bytes),
        *(states if plan.offload.optimizer == "none" else []),
        *inputs_and_buffers(plan),
    )


def _micro_step(step: _Step, laps: Laps) -> None:
    left = iter(laps)
    for forward in (True, False):
        step.recorder.phase = "forward" if forward else "backward"
        root = next(left)[0].by_hook[0]
        for copies, done in zip(in_running_order(step.plan, forward=forward), left, strict=False):
            _copies(step, copies, done, root)
            root = ()
    step.gradients.reduce()
    step.recorder.emit("end of backward", "gradients", waits=(step.gradients.stream,))
    step.parameters.act("root", next(left)[0].by_hook[0])
    step.parameters.used("root", list(step.parameters.saved))


def _copies(step: _Step, copies: Copies, done: tuple[Actions, ...], root: Acted) -> None:
    """Write the copies of a stretch; those are told once that meet the same bucket and actions."""
    fresh, bucket = _arriving(step, copies), replace(step.gradients)
    found: list[Gradients] = []
    keys: list[object] = []
    acted: list[tuple[int, Actions]] = []
    for actions in done:
        acted += [(len(acted), actions)] * actions.times
    for _, actions in acted:
        found.append(replace(bucket, members=list(bucket.members), standing=list(bucket.standing)))
        keys.append((id(actions), bucket.pass_by(fresh)))
    for alike in periods(keys):
        with step.recorder.repeat(alike.times, len(alike.units) * copies.stride):
            for copy in alike.units:
                first, actions = acted[copy]
                step.gradients.filled_as(found[copy])
                units, like = copies.units_of(copy), copies.units_of(first)
                _copy(step, units, like, (root, *actions.by_hook))
    step.gradients.filled_as(bucket)
    step.recorder.block = None


def _arriving(step: _Step, copies: Copies) -> list[Gradient]:
    """List the gradients of a copy as they arrive; in forward there are none."""
    if copies.stride > 0:
        return []
    return [
        step.fresh[step.starts[index] + place]
        for index in copies.units
        for item in step.items(index, forward=False)
        if isinstance(item, Run)
        for place in item.gradients
    ]


def _copy(
    step: _Step, units: tuple[int, ...], first: tuple[int, ...], done: tuple[Acted, ...]
) -> None:
    """Write a copy's units; places are those of the first copy that goes like it.

    The root's hook comes with the first one of a unit.
    """
    plan, recorder, parameters = step.plan, step.recorder, step.parameters
    root, *acted = done
    left = iter(acted)
    for index, like in zip(units, first, strict=True):
        recorder.block = plan.block_numbers[index]
        owner, start = plan.owner(index), step.starts[like]
        for item in step.items(index, forward=recorder.phase == "forward"):
            if isinstance(item, Run):
                _run(step, owner, item, start)
            elif isinstance(item, Hook):
                parameters.act("root", root)
                root = ()
                parameters.act(owner, next(left))
            else:
                items = step.items(index, forward=False) if item == "recompute" else []
                parameters.saving = _used(items, start)


def _used(items: list[UnitItem], start: int) -> frozenset[int]:
    """Return the places of the parameters that a unit's backward is done with at some point."""
    runs = [item for item in items if isinstance(item, Run)]
    return frozenset(start + p for run in runs for p in (*run.gradients, *run.frozen))


def _run(step: _Step, owner: str, run: Run, start: int) -> None:
    step.recorder.compute(step.recorder.phase, owner, run.part)
    places = [start + place for place in run.gradients]
    step.parameters.used(owner, [*places, *(start + place for place in run.frozen)])
    for place in places:
        step.gradients.arrive(step.fresh[place])
