"""ZeRO-1 and ZeRO-2's bucket: what fills it, and what happens when it is reduced.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterable
from typing import NamedTuple

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import (
    FP64,
    FlatGroup,
    fresh_category,
    transient,
)
from zeroplan.schedule.deepspeed_reduce import BucketReduction, Calls
from zeroplan.schedule.events import Recorder, collective
from zeroplan.schedule.offload import NORMS, copied
from zeroplan.schedule.plan import Plan
from zeroplan.units import ALLOCATION_BYTES, FP32, round_up
from zeroplan.workload.changes import Change

__all__ = ["Flush", "Step", "close", "finish", "flush", "write"]


class Flush(NamedTuple):
    """A reduction of the bucket, and what comes right before and after it."""

    before: tuple[Change, ...]
    calls: tuple[Calls, ...]
    after: tuple[Change, ...]
    traffic_bytes: int
    """HBM bytes of what this rank copies out of the bucket. [B]"""
    sent_bytes: int = 0
    """What goes to host memory, or comes from there and goes back. [B]"""


@dataclass(slots=True)
class Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    group: FlatGroup
    starts: tuple[int, ...]
    """Place of each unit's first parameter."""
    reduction: BucketReduction
    limit: int
    """Size of the bucket. [elements]"""
    copied_limit: int
    """Largest gradient that is copied to it. [elements]"""
    standing: set[int] = field(default_factory=set)
    """Places of reduced gradients, or of some in the bucket, in storages of their own."""
    members: list[int] = field(default_factory=list)
    """Places of what the bucket holds."""
    stale: list[int] = field(default_factory=list)
    """Places of reduced gradients of other ranks that wait for the next reduction."""
    filled: int = 0
    """[elements]"""
    buffers_bytes: int = 0
    """The bucket while it exists; two of them where reduction overlaps backward. [B]"""
    brought: bool = False
    """Whether the bucket exists."""
    waiting: bool = False
    """Whether gradients of earlier micro-steps wait for their reduction."""
    keeps: bool = False
    """Whether the buffer of this rank's gradients of this micro-step exists."""
    accumulates: bool = False
    """Whether gradients of earlier micro-steps are kept."""
    boundary: bool = True
    """Whether this is the last micro-step."""

    @property
    def by_hooks(self) -> bool:
        """Whether the bucket is filled as gradients arrive."""
        return self.plan.row.divides_gradients or bool(self.plan.choice.deepspeed.overlap_comm)

    def sizes(self, places: Iterable[int]) -> int:
        """Sum gradients, each in a storage of its own [B]."""
        elements, itemsize = self.group.elements, self.reduction.itemsize
        return int(sum([round_up(elements[place] * itemsize) for place in places]))

    def drop(self, places: Iterable[int]) -> list[Change]:
        """Free those gradients that have storages of their own."""
        if not self.standing:
            return []
        gone = self.standing.intersection(places)
        self.standing -= gone
        return [Change(fresh_category(self.plan), "gradients", -self.sizes(gone))] if gone else []

    def kept_bytes(self) -> int:
        """Reduced gradients of one micro-step: in one buffer, or where autograd put them [B]."""
        if self.plan.choice.deepspeed.contiguous_gradients:
            return self.group.kept_bytes(self.plan.dtypes.compute)
        return self.sizes(p for p, size in enumerate(self.group.fullest_pieces) if size)

    def overflows(self, elements: int) -> bool:
        """Whether the bucket is reduced before a gradient of this size enters."""
        return self.filled + elements > self.limit and bool(self.members)

    def enter(self, place: int, elements: int) -> None:
        """Take a gradient into the bucket; it is copied there, or stays where it is."""
        self.members.append(place)
        self.filled += elements
        if elements > self.copied_limit:
            self.standing.add(place)


def close(step: Step) -> tuple[int, Flush]:
    """Return the bytes of what was copied to the bucket, and its reduction."""
    copied = step.sizes(place for place in step.members if place not in step.standing)
    return copied, flush(step)


def flush(step: Step) -> Flush:
    """Reduce the bucket, copy this rank's gradients out of it, drop those of other ranks.

    Where reduction overlaps backward but gradients stay where autograd put them, those of other
    ranks go before the next reduction only (`_clear_previous_reduced_grads`).
    """
    reduction, settings = step.reduction, step.plan.choice.deepspeed
    pieces = step.group.fullest_pieces
    own = [place for place in step.members if pieces[place]]
    before = step.drop(step.stale)
    if reduction.compact and own and not step.accumulates:
        step.accumulates = True
        before.append(Change("gradients", "fp32 part", round_up(step.group.shard * FP32)))
    calls = tuple(reduction.calls(step.members))
    foreign = [p for p in step.members if p not in own] if step.plan.row.divides_gradients else []
    late = settings.overlap_comm and not settings.contiguous_gradients
    step.stale, gone = (foreign, []) if late else ([], foreign)
    after: list[Change] = []
    if step.plan.offload:
        sent = _sent(step, own)
        if step.boundary and own:
            largest = max(pieces[place] for place in own)
            after += transient("temporaries", "fp64 gradient", round_up(largest * FP64))
            after.append(Change("temporaries", NORMS, len(own) * ALLOCATION_BYTES))
        gone = [*gone, *own]
        after += step.drop(gone)
        step.members, step.filled = [], 0
        return Flush(tuple(before), calls, tuple(after), 0, sent)
    if settings.contiguous_gradients and own and not reduction.compact:
        if not step.keeps:
            after.append(Change("gradients", "kept gradients", step.kept_bytes()))
        step.keeps = True
        gone = [*gone, *own]
    after += step.drop(gone)
    step.members, step.filled = [], 0
    copied = sum([step.group.elements[place] for place in own]) * step.reduction.itemsize
    return Flush(tuple(before), calls, tuple(after), 2 * copied)


def _sent(step: Step, own: list[int]) -> int:
    """Count what moves between GPU and host for this rank's gradients.

    They accumulate in host memory, to which they come back as a sum made on the GPU
    (`async_accumulate_grad_in_cpu_via_gpu`); the last sum goes there in fp32. [B]
    """
    whole = step.sizes(own) if step.plan.micro_steps > 1 and not step.reduction.compact else 0
    last = sum([step.group.fullest_pieces[place] for place in own]) * FP32 if step.boundary else 0
    return last + whole * (1 + step.accumulates)


def write(step: Step, done: Flush) -> None:
    """Write a reduction down; the compute stream first waits for the one before it."""
    recorder, stream = step.recorder, step.reduction.stream
    waits = () if stream == "compute" else (stream,)
    recorder.emit("before reduction", "gradients", changes=done.before)
    recorder.emit("wait for reduction", "bucket", waits=waits)
    for call, times in done.calls:
        with recorder.repeat(times):
            recorder.emit(
                call.name.replace("_", "-"),
                "bucket",
                stream=stream,
                changes=call.copies,
                collective=collective(call.name, step.plan.groups.shard, call.size),
                traffic_bytes=4 * call.copied_bytes,
                waits=("compute",),
            )
    recorder.emit(
        "keep own gradients",
        "bucket",
        stream=stream,
        changes=done.after,
        traffic_bytes=done.traffic_bytes,
        transfer=copied(step.plan.offload, done.sent_bytes) if done.sent_bytes else None,
    )


def finish(step: Step) -> None:
    """Reduce what is left, add to the gradients of earlier micro-steps, drop the bucket."""
    if step.members:
        write(step, flush(step))
    changes = [Change("reduce_scatter_buffers", "bucket", -step.buffers_bytes)]
    step.buffers_bytes, step.stale = 0, []
    step.brought = step.keeps = step.waiting = False
    own = [place for place in step.standing if step.group.fullest_pieces[place]]
    changes += step.drop(list(step.standing))
    if step.plan.offload:
        step.accumulates = True
    elif not step.reduction.compact:
        changes.append(Change("gradients", "kept gradients", step.sizes(own)))
        if step.accumulates:
            changes.append(Change("gradients", "kept gradients", -step.kept_bytes()))
        step.accumulates = True
    step.recorder.emit(
        "end of backward", "gradients", changes=tuple(changes), waits=(step.reduction.stream,)
    )
