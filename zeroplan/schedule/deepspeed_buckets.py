"""ZeRO-1 and ZeRO-2: gradients are reduced by the bucket, each rank keeps the part it updates.

ZeRO-2 fills the bucket as gradients arrive, in every micro-step; ZeRO-1 keeps them whole and fills
it at the end of the last backward. There is no reduce-scatter: by default the whole bucket is
all-reduced. Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import (
    FP32,
    FP64,
    FlatGroup,
    accumulation_itemsize,
    collective,
    flat_parameters,
    fresh_category,
    numbered,
    transient,
)
from zeroplan.schedule.deepspeed_reduce import BucketReduction
from zeroplan.schedule.events import Recorder, Script
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.stretches import micro_steps
from zeroplan.sharding.layout import unique
from zeroplan.units import round_up
from zeroplan.workload.changes import Change

__all__ = ["bucket_script"]


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    group: FlatGroup
    reduction: BucketReduction
    standing: dict[int, int] = field(default_factory=dict)
    """Gradients in storages of their own, by their parameter's place. [B]"""
    members: list[int] = field(default_factory=list)
    """Places of what the bucket holds."""
    stale: list[int] = field(default_factory=list)
    """Places of reduced gradients of other ranks that wait for the next reduction."""
    filled: int = 0
    """[elements]"""
    buffers_bytes: int = 0
    """The bucket while it exists; two of them where reduction overlaps backward. [B]"""
    keeps: bool = False
    """Whether the buffer of this rank's gradients of this micro-step exists."""
    accumulates: bool = False
    """Whether gradients of earlier micro-steps are kept."""

    @property
    def by_hooks(self) -> bool:
        """Whether the bucket is filled as gradients arrive."""
        return self.plan.row.divides_gradients or bool(self.plan.choice.deepspeed.overlap_comm)

    @property
    def itemsize(self) -> int:
        """Bytes per element of a gradient that waits for its reduction."""
        if self.plan.row.divides_gradients:
            return self.plan.dtypes.compute
        return accumulation_itemsize(self.plan)

    def drop(self, place: int) -> list[Change]:
        """Free a gradient that has a storage of its own."""
        size = self.standing.pop(place, 0)
        return [Change(fresh_category(self.plan), "gradient", -size)] if size else []

    def owns(self, place: int) -> bool:
        """Whether this rank updates a piece of a parameter."""
        return self.group.fullest_pieces[place] > 0

    def kept_bytes(self) -> int:
        """Reduced gradients of one micro-step: in one buffer, or where autograd put them [B]."""
        if self.plan.choice.deepspeed.contiguous_gradients:
            return self.group.kept_bytes(self.plan.dtypes.compute)
        sizes = [n for place, n in enumerate(self.group.elements) if self.owns(place)]
        return sum(int(round_up(n * self.itemsize)) for n in sizes)


def bucket_script(plan: Plan) -> Script:
    """Write one steady-state step of ZeRO-1 or ZeRO-2 down."""
    group = FlatGroup(
        elements=tuple(p.elements for p in flat_parameters(plan)),
        ranks=plan.groups.shard.ranks,
        round_robin=plan.choice.deepspeed.round_robin_gradients,
    )
    recorder = Recorder()
    step = _Step(plan, recorder, group, BucketReduction(plan, recorder, group))
    for times, last in micro_steps(plan.micro_steps):
        with recorder.repeat(times):
            _forward(step)
            _backward(step, last=last)
    _update(step)
    return Script(resident=_resident(step), items=tuple(recorder.items))


def _resident(step: _Step) -> tuple[Change, ...]:
    held, shard = step.plan.dtypes, step.group.shard
    flat = round_up(shard * step.group.ranks * held.parameter)
    return (
        Change("parameters", "flat parameters", flat),
        *state_changes([(shard, 1)], held),
        *inputs_and_buffers(step.plan),
    )


def _forward(step: _Step) -> None:
    step.recorder.phase = "forward"
    for index in step.plan.walk_forward(step.recorder):
        for part in step.plan.forward_parts(index):
            step.recorder.compute("forward", step.plan.owner(index), part)


def _backward(step: _Step, *, last: bool) -> None:
    """Run backward; the bucket straddles blocks, so that each is told for itself."""
    plan, recorder = step.plan, step.recorder
    recorder.phase = "backward"
    enters = plan.row.divides_gradients or (last and step.by_hooks)
    for index, start in numbered(plan, forward=False):
        recorder.block = plan.block_numbers[index]
        places = {id(p): start + i for i, p in enumerate(unique(plan.units[index].parameters))}
        for part, parameters in plan.gradient_chunks(index):
            recorder.compute("backward", plan.owner(index), part)
            for parameter in parameters:
                _arrive(step, places[id(parameter)])
                if enters:
                    _enter(step, places[id(parameter)])
    recorder.block = None
    if last and not step.by_hooks:
        for place in sorted(step.standing):
            _enter(step, place)
    if last or plan.row.divides_gradients:
        _finish(step)


def _arrive(step: _Step, place: int) -> None:
    """Take a fresh gradient in: the first one of a backward brings the bucket with it."""
    plan, elements = step.plan, step.group.elements[place]
    settings, category = plan.choice.deepspeed, fresh_category(plan)
    changes: list[Change] = []
    if settings.contiguous_gradients and not step.buffers_bytes:
        one = int(round_up(settings.reduce_bucket_size * step.itemsize))
        step.buffers_bytes = one * (2 if settings.overlap_comm else 1)
        changes.append(Change("reduce_scatter_buffers", "bucket", step.buffers_bytes))
    size = int(round_up(elements * step.itemsize))
    if step.itemsize != plan.dtypes.compute:
        fresh = round_up(elements * plan.dtypes.compute)
        changes += [Change(category, "gradient", size), Change(category, "gradient", -fresh)]
    if place in step.standing:
        changes.append(Change(category, "gradient", -size))
    step.standing[place] = size
    if changes:
        step.recorder.emit("accumulate", "gradients", changes=tuple(changes))


def _enter(step: _Step, place: int) -> None:
    """Copy a gradient into the bucket, reducing first what is in there if it would overflow.

    One that is larger than the bucket is reduced where it is.
    """
    elements, settings = step.group.elements[place], step.plan.choice.deepspeed
    if step.filled + elements > settings.reduce_bucket_size:
        _flush(step)
    step.members.append(place)
    step.filled += elements
    if settings.contiguous_gradients and elements <= settings.reduce_bucket_size:
        size = step.standing[place]
        step.recorder.emit(
            "copy to bucket", "gradients", changes=tuple(step.drop(place)), traffic_bytes=2 * size
        )


def _flush(step: _Step) -> None:
    """Reduce the bucket, copy this rank's gradients out of it, drop those of other ranks.

    Where reduction overlaps backward but gradients stay where autograd put them, those of other
    ranks go before the next reduction only (`_clear_previous_reduced_grads`).
    """
    if not step.members:
        return
    reduction, settings = step.reduction, step.plan.choice.deepspeed
    own = [place for place in step.members if step.owns(place)]
    before = [change for place in step.stale for change in step.drop(place)]
    if reduction.compact and own and not step.accumulates:
        step.accumulates = True
        before.append(Change("gradients", "fp32 part", round_up(step.group.shard * FP32)))
    step.recorder.emit("before reduction", "gradients", changes=tuple(before))
    reduction.run(step.members, step.itemsize)
    foreign = [p for p in step.members if p not in own] if step.plan.row.divides_gradients else []
    late = settings.overlap_comm and not settings.contiguous_gradients
    step.stale, gone = (foreign, []) if late else ([], foreign)
    after: list[Change] = []
    if settings.contiguous_gradients and own and not reduction.compact:
        if not step.keeps:
            after.append(Change("gradients", "kept gradients", step.kept_bytes()))
        step.keeps = True
        gone = [*gone, *own]
    after += [change for place in gone for change in step.drop(place)]
    step.members, step.filled = [], 0
    step.recorder.emit(
        "keep own gradients",
        "bucket",
        stream=reduction.stream,
        changes=tuple(after),
        traffic_bytes=2 * sum(step.group.elements[place] for place in own) * step.itemsize,
    )


def _finish(step: _Step) -> None:
    """Reduce what is left, add to the gradients of earlier micro-steps, drop the bucket."""
    _flush(step)
    changes = [Change("reduce_scatter_buffers", "bucket", -step.buffers_bytes)]
    step.buffers_bytes, step.keeps, step.stale = 0, False, []
    for place in list(step.standing):
        size = step.standing[place]
        changes += step.drop(place)
        if step.owns(place) and not step.reduction.compact:
            changes.append(Change("gradients", "kept gradients", size))
    if not step.reduction.compact:
        if step.accumulates:
            changes.append(Change("gradients", "kept gradients", -step.kept_bytes()))
        step.accumulates = True
    step.recorder.emit(
        "end of backward", "gradients", changes=tuple(changes), waits=(step.reduction.stream,)
    )


def _update(step: _Step) -> None:
    """Check for overflow, take the norm in fp64, cast the part to fp32, step, gather."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    recorder.phase = "optimizer"
    ranks, shard = plan.groups.shard, step.group.shard
    if held.compute < FP32:
        recorder.emit(
            "check overflow",
            "optimizer",
            collective=collective("all_reduce", ranks, 1, 1),
            traffic_bytes=2 * shard * step.itemsize,
        )
    recorder.emit(
        "gradient norm",
        "optimizer",
        changes=transient(
            "temporaries", "fp64 gradient", round_up(max(step.group.fullest_pieces) * FP64)
        ),
        collective=collective("all_reduce", ranks, FP32, FP32),
        traffic_bytes=shard * (step.itemsize + 2 * FP64),
    )
    recorder.emit(
        "fp32 part",
        "optimizer",
        changes=_cast(step),
        traffic_bytes=shard * (3 * step.itemsize + FP32),
    )
    torch_optimizer_step(recorder, [(shard, 1)], held)
    size = shard * held.parameter
    recorder.emit(
        "all-gather parameters",
        "optimizer",
        changes=(Change("gradients", "fp32 part", -round_up(shard * FP32)),),
        collective=collective("all_gather", ranks, size, size * ranks.ranks),
    )


def _cast(step: _Step) -> tuple[Change, ...]:
    """Flatten the part's gradients and cast them to fp32; a compact part is that already."""
    if step.reduction.compact:
        return ()
    wide = Change("gradients", "fp32 part", round_up(step.group.shard * FP32))
    kept = Change("gradients", "kept gradients", -step.kept_bytes())
    if step.itemsize == FP32:
        return (wide, kept)
    pieces = sum(elements > 0 for elements in step.group.fullest_pieces)
    size = round_up(step.group.shard * step.itemsize) if pieces > 1 else 0
    flat = transient("gradients", "flat part", size)
    return (*flat[:1], wide, *flat[1:], kept)
