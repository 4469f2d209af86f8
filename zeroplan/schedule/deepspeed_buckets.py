"""ZeRO-1 and ZeRO-2: gradients are reduced by the bucket, each rank keeps the part it updates.

ZeRO-2 fills the bucket as gradients arrive, in every micro-step; ZeRO-1 keeps them whole and
fills it at the end of the last backward. There is no reduce-scatter: by default the whole bucket
is all-reduced. Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from dataclasses import dataclass, field

from zeroplan.schedule.deepspeed_common import (
    FP32,
    FP64,
    FlatGroup,
    accumulation_itemsize,
    chunk_positions,
    collective,
    fresh_category,
    run_forward,
    transient,
)
from zeroplan.schedule.deepspeed_reduce import BucketReduction
from zeroplan.schedule.events import Recorder, Script
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.sharding.layout import unique
from zeroplan.units import round_up
from zeroplan.workload.liveness import Category, Change

__all__ = ["bucket_script"]


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    group: FlatGroup
    reduction: BucketReduction
    rank: int
    """The rank whose memory is told: the one that keeps most gradients."""
    standing: dict[int, int] = field(default_factory=dict)
    """Gradients in storages of their own, by their parameter's place. [B]"""
    members: list[int] = field(default_factory=list)
    """Places of what the bucket holds."""
    buffers_bytes: int = 0
    """The bucket itself while it exists, both of them if reduction overlaps backward. [B]"""
    kept: bool = False
    """Whether `grads_in_partition` holds gradients of this micro-step."""
    accumulated: bool = False
    """Whether gradients of earlier micro-steps are kept."""
    compact_exists: bool = False

    @property
    def by_hooks(self) -> bool:
        """Whether the bucket is filled as gradients arrive."""
        return self.plan.row.divides_gradients or bool(self.plan.choice.deepspeed.overlap_comm)

    @property
    def kept_itemsize(self) -> int:
        """Bytes per element of a gradient that waits for its reduction. [B]"""
        if self.plan.row.divides_gradients:
            return self.plan.dtypes.compute
        return accumulation_itemsize(self.plan)

    @property
    def compact(self) -> bool:
        """Whether reduced gradients are added up in one fp32 vector of this rank's part."""
        return accumulation_itemsize(self.plan) == FP32 != self.plan.dtypes.compute

    @property
    def partition_bytes(self) -> int:
        """Gradients that this rank keeps between reduction and step. [B]"""
        held = self.group.held_elements[self.rank]
        return int(round_up(held * self.plan.dtypes.compute))

    def owns(self, place: int) -> bool:
        """Whether this rank updates a piece of a parameter."""
        return any(rank == self.rank for rank, _ in self.group.spans[place])

    def drop(self, place: int) -> list[Change]:
        """Free a gradient that has a storage of its own."""
        size = self.standing.pop(place, 0)
        return [Change(fresh_category(self.plan), "gradient", -size)] if size else []


def bucket_script(plan: Plan) -> Script:
    """Write one steady-state step of ZeRO-1 or ZeRO-2 down."""
    group = FlatGroup(
        elements=tuple(p.elements for p in plan.parameters),
        ranks=plan.groups.shard.ranks,
        round_robin=plan.choice.deepspeed.round_robin_gradients,
    )
    recorder, rank = Recorder(), group.fullest_rank
    step = _Step(plan, recorder, group, BucketReduction(plan, recorder, group, rank), rank)
    for micro_step in range(plan.micro_steps):
        run_forward(plan, recorder)
        _backward(step, last=micro_step == plan.micro_steps - 1)
    _update(step)
    return Script(resident=_resident(step), events=tuple(recorder.events))


def _resident(step: _Step) -> tuple[Change, ...]:
    plan, held, shard = step.plan, step.plan.dtypes, step.group.shard
    flat = round_up(shard * step.group.ranks * held.parameter)
    return (
        Change("parameters", "flat parameters", flat),
        *state_changes([shard], held),
        *inputs_and_buffers(plan),
    )


def _backward(step: _Step, *, last: bool) -> None:
    plan, recorder = step.plan, step.recorder
    recorder.phase = "backward"
    base = len(step.group.elements)
    for index in reversed(range(len(plan.units))):
        base -= len(unique(plan.units[index].parameters))
        for (part, _), local in chunk_positions(plan, index):
            ready = recorder.compute("backward", plan.owner(index), part)
            for place in local:
                _arrive(step, base + place)
                if plan.row.divides_gradients or (last and step.by_hooks):
                    _enter(step, base + place, ready)
    if last and not step.by_hooks:
        for place in range(len(step.group.elements)):
            if place in step.standing:
                _enter(step, place, ready)
    if last or plan.row.divides_gradients:
        _finish(step)


def _arrive(step: _Step, place: int) -> None:
    """Take a fresh gradient in: the first one of a backward brings the bucket with it."""
    plan, elements = step.plan, step.group.elements[place]
    settings, category = plan.choice.deepspeed, fresh_category(plan)
    changes: list[Change] = []
    if settings.contiguous_gradients and not step.buffers_bytes:
        one = int(round_up(settings.reduce_bucket_size * step.kept_itemsize))
        step.buffers_bytes = one * (2 if settings.overlap_comm else 1)
        changes.append(Change("reduce_scatter_buffers", "bucket", step.buffers_bytes))
    fresh = int(round_up(elements * plan.dtypes.compute))
    size = int(round_up(elements * step.kept_itemsize))
    if step.kept_itemsize != plan.dtypes.compute:
        changes += [Change(category, "gradient", size), Change(category, "gradient", -fresh)]
    if place in step.standing:
        changes.append(Change(category, "gradient", -size))
    step.standing[place] = size
    if changes:
        step.recorder.emit("accumulate", "gradients", changes=tuple(changes))


def _enter(step: _Step, place: int, ready: int) -> None:
    """Copy a gradient into the bucket, reducing what is in there first if it would overflow.

    One that is larger than the bucket is reduced where it is.
    """
    elements, settings = step.group.elements[place], step.plan.choice.deepspeed
    filled = sum(step.group.elements[p] for p in step.members)
    if filled + elements > settings.reduce_bucket_size:
        _flush(step, ready)
    step.members.append(place)
    if settings.contiguous_gradients and elements <= settings.reduce_bucket_size:
        size = step.standing[place]
        step.recorder.emit(
            "copy to bucket", "gradients", changes=tuple(step.drop(place)), traffic_bytes=2 * size
        )


def _flush(step: _Step, ready: int) -> None:
    """Reduce the bucket, keep this rank's gradients of it, drop those of other ranks."""
    if not step.members:
        return
    if step.compact and not step.compact_exists and any(map(step.owns, step.members)):
        step.compact_exists = True
        size = round_up(step.group.shard * FP32)
        step.recorder.emit(
            "fp32 gradients", "gradients", changes=(Change("gradients", "fp32 part", size),)
        )
    event = step.reduction.run(step.members, step.kept_itemsize, ready)
    contiguous = step.plan.choice.deepspeed.contiguous_gradients
    changes: list[Change] = []
    for place in step.members:
        if not step.owns(place):
            changes += step.drop(place) if step.plan.row.divides_gradients else []
        elif contiguous and not step.compact:
            if not step.kept:
                step.kept = True
                changes.append(Change("gradients", "gradients in part", step.partition_bytes))
            changes += step.drop(place)
    step.members = []
    if changes:
        step.reduction.emit("keep own gradients", tuple(changes), event)


def _finish(step: _Step) -> None:
    """Reduce what is left, add to the gradients of earlier micro-steps, drop the bucket."""
    _flush(step, len(step.recorder.events) - 1)
    category = fresh_category(step.plan)
    changes = [Change("reduce_scatter_buffers", "bucket", -step.buffers_bytes)]
    step.buffers_bytes = 0
    own = {place for place in step.standing if step.owns(place)} if not step.compact else set()
    for place in list(step.standing):
        if place in own:
            changes.append(Change("gradients", "gradients in part", step.standing[place]))
        changes += step.drop(place)
    if step.accumulated:
        changes.append(Change("gradients", "gradients in part", -_kept_bytes(step)))
    step.accumulated = not step.compact
    step.kept = False
    step.recorder.emit(
        "end of backward", category, changes=tuple(changes), waits=step.reduction.pending
    )
    step.reduction.pending = []


def _kept_bytes(step: _Step) -> int:
    """Reduced gradients of one micro-step: in one buffer, or each in its own storage. [B]"""
    if step.plan.choice.deepspeed.contiguous_gradients:
        return step.partition_bytes
    itemsize = step.plan.dtypes.compute
    return sum(
        int(round_up(n * itemsize)) for p, n in enumerate(step.group.elements) if step.owns(p)
    )


def _update(step: _Step) -> None:
    """Check for overflow, take the norm in fp64, cast the part to fp32, step, gather."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    recorder.phase = "optimizer"
    ranks, shard = plan.groups.shard, step.group.shard
    if held.compute < FP32:
        recorder.emit(
            "check overflow", "optimizer", collective=collective("all_reduce", ranks, 1, 1)
        )
    norm = round_up(step.group.largest_piece(step.rank) * FP64)
    recorder.emit(
        "gradient norm",
        "optimizer",
        changes=transient("temporaries", "fp64 gradient", norm),
        collective=collective("all_reduce", ranks, FP32, FP32),
    )
    recorder.emit("fp32 gradients", "optimizer", changes=_cast(step), traffic_bytes=10 * shard)
    torch_optimizer_step(recorder, [shard], held)
    size = shard * held.parameter
    recorder.emit(
        "all-gather parameters",
        "optimizer",
        changes=(Change("gradients", "fp32 part", -round_up(shard * FP32)),),
        collective=collective("all_gather", ranks, size, size * ranks.ranks),
    )


def _cast(step: _Step) -> tuple[Change, ...]:
    """Flatten the part's gradients and cast them to fp32; a compact part is that already."""
    if step.compact:
        return ()
    gradient: Category = "gradients"
    shard, itemsize = step.group.shard, step.plan.dtypes.compute
    pieces = sum(step.owns(place) for place in range(len(step.group.elements)))
    flat = round_up(shard * itemsize) if pieces > 1 or step.rank == step.group.ranks - 1 else 0
    wide = round_up(shard * FP32)
    changes = [Change(gradient, "flat part", flat)] if flat else []
    if itemsize == FP32:
        changes = [Change(gradient, "fp32 part", wide)] if flat else []
        gone = _kept_bytes(step) if flat else _kept_bytes(step) - wide
        return (*changes, Change(gradient, "gradients in part", -gone))
    changes.append(Change(gradient, "fp32 part", wide))
    if flat:
        changes.append(Change(gradient, "flat part", -flat))
    return (*changes, Change(gradient, "gradients in part", -_kept_bytes(step)))
