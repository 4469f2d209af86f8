"""ZeRO-1 and ZeRO-2: gradients are reduced by the bucket, each rank keeps the part it updates.

ZeRO-2 fills the bucket as gradients arrive, in every micro-step; ZeRO-1 keeps them whole and fills
it at the end of the last backward. There is no reduce-scatter: by default the whole bucket is
all-reduced. Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator

from zeroplan.schedule.deepspeed_arrivals import Arrivals, largest_copied
from zeroplan.schedule.deepspeed_common import (
    FP64,
    Copies,
    FlatGroup,
    flat_parameters,
    forward,
    fresh_category,
    in_running_order,
    transient,
    unit_starts,
)
from zeroplan.schedule.deepspeed_host import as_run, host_buffers, update_on_host
from zeroplan.schedule.deepspeed_reduce import BucketReduction
from zeroplan.schedule.deepspeed_step import Flush, Step, close, finish, flush, write
from zeroplan.schedule.events import Recorder, Script, collective
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.reference import reference_model
from zeroplan.schedule.stretches import micro_steps, periods
from zeroplan.sharding.optimizer_states import vector
from zeroplan.units import FP32, round_up
from zeroplan.workload.changes import Change

__all__ = ["bucket_script"]


def bucket_script(plan: Plan) -> Script:
    """Write one steady-state step of ZeRO-1 or ZeRO-2 down."""
    plan = as_run(plan)
    group = FlatGroup(
        elements=tuple(p.elements for p in flat_parameters(plan, trained=True)),
        ranks=plan.groups.shard.ranks,
        round_robin=plan.choice.deepspeed.round_robin_gradients,
    )
    recorder = Recorder()
    reduction = BucketReduction(plan=plan, group=group)
    limit = plan.choice.deepspeed.reduce_bucket_size
    step = Step(
        plan=plan,
        recorder=recorder,
        group=group,
        starts=unit_starts(plan, trained=True),
        reduction=reduction,
        limit=limit,
        copied_limit=largest_copied(plan),
    )
    for times, last in micro_steps(plan.micro_steps):
        with recorder.repeat(times, micro_steps=True):
            forward(recorder, plan)
            _backward(step, last=last)
    _update(step)
    return Script(
        resident=_resident(step),
        items=tuple(recorder.items),
        host=tuple(host_buffers(step)) if plan.offload else (),
    )


def _resident(step: Step) -> tuple[Change, ...]:
    held, shard = step.plan.dtypes, step.group.shard
    flat = round_up(shard * step.group.ranks * held.parameter)
    states = state_changes([vector(shard)], held)
    if step.plan.offload:
        way = round_up(max(step.group.elements) * held.compute)
        states = [Change("reduce_scatter_buffers", "gradient on its way to the host", way)]
    return (
        Change("parameters", "flat parameters", flat),
        Change("parameters", "frozen parameters", step.plan.frozen_bytes),
        *states,
        *reference_model(step.plan),
        *inputs_and_buffers(step.plan),
    )


def _backward(step: Step, *, last: bool) -> None:
    plan, recorder = step.plan, step.recorder
    recorder.phase = "backward"
    step.boundary = last
    divides = plan.row.divides_gradients
    enter = divides or (last and step.by_hooks)
    arrivals = Arrivals(plan, accumulated=step.waiting, enter=enter)
    if enter:
        _reduce_on_the_way(step, arrivals)
    else:
        for index in plan.walk_backward(recorder):
            arrivals.emit(recorder, index, _bring_bucket(step, arrivals, index))
        step.waiting = True
    if last and not step.by_hooks:
        _reduce_at_the_end(step)
    if last or divides:
        finish(step)


def _bring_bucket(step: Step, arrivals: Arrivals, index: int) -> int:
    """Let the first gradient of a backward bring the bucket with it, return the parts up to it."""
    settings, gradients = step.plan.choice.deepspeed, arrivals.of(index)
    if step.brought or not settings.contiguous_gradients or not gradients:
        return 0
    step.brought = True
    first = gradients[0].at - 1
    arrivals.emit(step.recorder, index, 0, first)
    one = int(round_up(settings.reduce_bucket_size * step.reduction.itemsize))
    step.buffers_bytes = one * (2 if settings.overlap_comm else 1)
    born = Change("reduce_scatter_buffers", "bucket", step.buffers_bytes)
    step.recorder.emit("bucket", "gradients", changes=(born,))
    return first


Cuts = tuple[tuple[int, Flush], ...]
"""Reductions of the bucket in a unit's backward, and the parts before which they come."""


def _reduce_on_the_way(step: Step, arrivals: Arrivals) -> None:
    """Run backward; copies of a block in which the bucket is cut alike are told once."""
    for copies in in_running_order(step.plan, forward=False):
        begin = _bring_bucket(step, arrivals, copies.units[0])
        cuts = list(_cuts(step, arrivals, copies))
        for alike in periods(cuts):
            with step.recorder.repeat(alike.times, len(alike.units) * copies.stride):
                for copy in alike.units:
                    for index, of_unit in zip(copies.units_of(copy), cuts[copy], strict=True):
                        step.recorder.block = step.plan.block_numbers[index]
                        _write_unit(step, arrivals, index, of_unit, begin)
                        begin = 0
    step.recorder.block = None


def _cuts(step: Step, arrivals: Arrivals, copies: Copies) -> Iterator[tuple[Cuts, ...]]:
    """Let the gradients of copies enter the bucket, yield by copy and unit what that takes."""
    for copy in range(copies.times):
        yield tuple([tuple(_fill(step, arrivals, index)) for index in copies.units_of(copy)])


def _fill(step: Step, arrivals: Arrivals, index: int) -> Iterator[tuple[int, Flush]]:
    start = step.starts[index]
    for at, place, elements in arrivals.of(index):
        if step.overflows(elements):
            yield at, flush(step)
        step.enter(start + place, elements)


def _write_unit(step: Step, arrivals: Arrivals, index: int, cuts: Cuts, begin: int) -> None:
    """Write a unit's backward from a part on, with reductions between."""
    for at, reduction in cuts:
        arrivals.emit(step.recorder, index, begin, at)
        write(step, reduction)
        begin = at
    arrivals.emit(step.recorder, index, begin)


def _reduce_at_the_end(step: Step) -> None:
    """Fill and reduce the bucket with gradients that wait, in the order of registration."""
    buckets: list[tuple[int, Flush]] = []
    for place, elements in enumerate(step.group.elements):
        if step.overflows(elements):
            buckets.append(close(step))
        step.enter(place, elements)
    buckets.append(close(step))
    category = fresh_category(step.plan)
    for alike in periods(buckets):
        with step.recorder.repeat(alike.times):
            for copied, reduction in [buckets[index] for index in alike.units]:
                step.recorder.emit(
                    "copy to bucket",
                    "gradients",
                    changes=(Change(category, "gradients", -copied),),
                    traffic_bytes=2 * copied,
                )
                write(step, reduction)


def _update(step: Step) -> None:
    """Check for overflow, take the norm in fp64, cast the part to fp32, step, gather."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    recorder.phase = "optimizer"
    ranks, shard = plan.groups.shard, step.group.shard
    if plan.offload:
        update_on_host(step)
        return
    if held.compute < FP32:
        recorder.emit(
            "check overflow",
            "optimizer",
            collective=collective("all_reduce", ranks, 1),
            traffic_bytes=2 * shard * step.reduction.itemsize,
        )
    recorder.emit(
        "gradient norm",
        "optimizer",
        changes=transient(
            "temporaries", "fp64 gradient", round_up(max(step.group.fullest_pieces) * FP64)
        ),
        collective=collective("all_reduce", ranks, FP32),
        traffic_bytes=shard * (step.reduction.itemsize + 2 * FP64),
    )
    recorder.emit(
        "fp32 part",
        "optimizer",
        changes=_cast(step),
        traffic_bytes=shard * (3 * step.reduction.itemsize + FP32),
    )
    torch_optimizer_step(recorder, [vector(shard)], held)
    size = shard * held.parameter
    recorder.emit(
        "all-gather parameters",
        "optimizer",
        changes=(Change("gradients", "fp32 part", -round_up(shard * FP32)),),
        collective=collective("all_gather", ranks, size, size * ranks.ranks),
    )


def _cast(step: Step) -> tuple[Change, ...]:
    """Flatten the part's gradients and cast them to fp32; a compact part is that already."""
    if step.reduction.compact:
        return ()
    wide = Change("gradients", "fp32 part", round_up(step.group.shard * FP32))
    kept = Change("gradients", "kept gradients", -step.kept_bytes())
    if step.reduction.itemsize == FP32:
        return (wide, kept)
    pieces = sum(elements > 0 for elements in step.group.fullest_pieces)
    size = round_up(step.group.shard * step.reduction.itemsize) if pieces > 1 else 0
    flat = transient("gradients", "flat part", size)
    return (*flat[:1], wide, *flat[1:], kept)
