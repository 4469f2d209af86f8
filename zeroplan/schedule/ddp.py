"""DDP, and one GPU without a wrapper: whole states, gradients reduced in buckets as they arrive.

Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (2.13).
"""

from collections.abc import Callable, Iterator
from typing import Final

from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Recorder, Script, collective
from zeroplan.schedule.optimizer import (
    Sizes,
    clip_whole,
    torch_optimizer_step,
    torch_state_changes,
)
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.reference import reference_forward, reference_model
from zeroplan.schedule.stretches import Stretch, micro_steps
from zeroplan.sharding.optimizer_states import Piece
from zeroplan.units import MIB, Size, round_up
from zeroplan.workload.changes import Change
from zeroplan.workload.tape import Parameter

__all__ = ["Bucket", "data_parallel_script", "ddp_script"]

FIRST_BUCKET_BYTES: Final = MIB
"""Cap of the first bucket while `bucket_cap_mb` is left at its default."""
DEFAULT_BUCKET_BYTES: Final = 25 * MIB


@dataclass(slots=True)
class Bucket:
    """The bucket that gradients fill in the order in which they arrive.

    It closes when its size reaches or passes its cap, so buckets are never smaller than that
    (`compute_bucket_assignment_by_size`). The order is known from the second iteration on.
    """

    itemsize: int
    bucket_bytes: int
    size: int = 0
    first: bool = True

    def add(self, parameter: Parameter) -> int:
        """Take a gradient in; return the bucket's bytes if that closes it, else 0."""
        default = self.bucket_bytes == DEFAULT_BUCKET_BYTES
        cap = FIRST_BUCKET_BYTES if self.first and default else self.bucket_bytes
        self.size += parameter.elements * self.itemsize
        return self.close() if self.size >= cap else 0

    def close(self) -> int:
        """Start the next bucket and return the bytes of this one."""
        size, self.size, self.first = self.size, 0, False
        return size


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    grads_exist: bool = False
    """Whether an earlier micro-step left gradients, to which new ones are added."""
    grads_apart: bool = False
    """Whether those lie in storages of their own, not in the buckets."""
    buckets_bytes: Size = 0
    """All buckets of the last backward. [B]"""

    @property
    def views(self) -> bool:
        """Whether gradients are views of the buckets."""
        return self.plan.row.distributed and self.plan.choice.gradient_as_bucket_view


def ddp_script(plan: Plan) -> Script:
    """Write one steady-state step of DDP, or of one GPU alone, down."""
    trained = [(p.elements, times) for p, times in plan.trained]
    return data_parallel_script(plan, trained, plan.pieces, lambda _: None)


def data_parallel_script(
    plan: Plan, stored: Sizes, updated: list[Piece], publish: Callable[[Recorder], None]
) -> Script:
    """Write one step with whole parameters and gradients down.

    Parameters
    ----------
    plan
        What is trained, and how.
    stored
        Storages of the parameters that are trained, with the number of copies [elements].
    updated
        What this rank updates and keeps the states of.
    publish
        Sends them to the other ranks.

    """
    apart = plan.keeps_gradients and not (
        plan.row.distributed and plan.choice.gradient_as_bucket_view
    )
    step = _Step(plan, Recorder(), grads_exist=plan.keeps_gradients, grads_apart=apart)
    for times, last in micro_steps(plan.micro_steps):
        every = plan.choice.synchronize_gradients == "every"
        reduces = plan.row.distributed and (last or every)
        with step.recorder.repeat(times, micro_steps=True):
            _forward(step, broadcasts=reduces)
            _backward(step, reduces=reduces)
    step.recorder.phase = "optimizer"
    if plan.updates_in_backward:
        step.recorder.emit("optimizer step", "optimizer", waits=("all-reduce",))
        step.grads_apart = False
    else:
        if plan.training.gradient_clipping:
            clip_whole(step.recorder, plan.pieces, itemsize=plan.dtypes.gradient)
        torch_optimizer_step(step.recorder, updated, plan.dtypes)
    publish(step.recorder)
    if step.grads_apart and not plan.keeps_gradients:
        _drop_gradients(step, "zero_grad", plan.parameters)
    held = plan.dtypes
    trained = sum(round_up(n * held.parameter) * times for n, times in stored)
    resident = (
        Change("parameters", "all", trained + plan.frozen_bytes),
        Change("gradients", "gradient buckets", step.buckets_bytes),
        *(_gradients(plan, plan.parameters) if apart else []),
        *torch_state_changes(updated, held),
        *reference_model(plan),
        *inputs_and_buffers(plan),
    )
    return Script(resident=resident, items=tuple(step.recorder.items))


def _forward(step: _Step, *, broadcasts: bool) -> None:
    """Run forward; DDP first broadcasts the module's buffers, rotary tables among them."""
    plan, recorder = step.plan, step.recorder
    recorder.phase = "forward"
    reference_forward(recorder, plan)
    buffers = plan.workload.buffers_bytes
    if broadcasts and buffers and plan.groups.world.ranks > 1:
        size = sum(buffers)
        call = collective("broadcast", plan.groups.world, size)
        recorder.emit("broadcast buffers", "DDP", stream="all-reduce", collective=call)
    plan.write_forward(recorder)
    copies = tuple(plan.cached_copies())
    if copies:
        recorder.emit("leave autocast", "weight copies", changes=copies)


def _backward(step: _Step, *, reduces: bool) -> None:
    """Run backward; a bucket is reduced when the last of its gradients has arrived."""
    step.recorder.phase = "backward"
    step.buckets_bytes = 0
    held = step.plan.dtypes
    bucket = Bucket(held.gradient, step.plan.choice.bucket_bytes) if reduces else None
    for stretch in reversed(step.plan.stretches):
        for copies, index in _copies(step, stretch, bucket):
            _unit_backward(step, index, copies, bucket)
    if bucket is not None and bucket.size:
        _reduce(step, bucket.close(), 1)
    step.recorder.emit("end of backward", "DDP", waits=("all-reduce",))
    if reduces or not step.grads_exist:
        step.grads_apart = not (reduces and step.views)
    step.grads_exist = True


def _copies(step: _Step, stretch: Stretch, bucket: Bucket | None) -> Iterator[tuple[int, int]]:
    """Yield a stretch's units in backward order with the copies that the next events stand for.

    Buckets straddle blocks: only where one copy leaves the bucket as it found it are the
    remaining copies told once.
    """
    plan, left, period = step.plan, stretch.times, len(stretch.units)
    while left:
        copies = left if _leaves(plan, stretch, bucket) else 1
        with step.recorder.repeat(copies, -period):
            for index in reversed(stretch.units):
                number = plan.block_numbers[index]
                later = (left - 1) * period
                step.recorder.block = None if number is None else number + later
                yield copies, index
        left -= copies
    step.recorder.block = None


def _leaves(plan: Plan, stretch: Stretch, bucket: Bucket | None) -> bool:
    if bucket is None:
        return True
    after = replace(bucket)
    for index in reversed(stretch.units):
        for _, parameters in plan.gradient_chunks(index):
            for parameter in parameters:
                after.add(parameter)
    return after == bucket


def _unit_backward(step: _Step, index: int, copies: int, bucket: Bucket | None) -> None:
    plan = step.plan
    for part, parameters in plan.gradient_chunks(index):
        step.recorder.compute("backward", plan.owner(index), part)
        if bucket is not None:
            for parameter in parameters:
                closed = bucket.add(parameter)
                if closed:
                    _reduce(step, closed, copies)
        fresh = [(parameter, 1) for parameter in parameters]
        if plan.updates_in_backward:
            _update(step, index, parameters)
            continue
        if parameters and step.grads_exist:
            _drop_gradients(step, "accumulate", fresh)
        moves = step.grads_apart or not step.grads_exist
        if parameters and bucket is not None and step.views and moves:
            _drop_gradients(step, "copy to bucket", fresh)


def _update(step: _Step, index: int, parameters: tuple[Parameter, ...]) -> None:
    """Update parameters one by one and drop their gradients (`register_post_accumulate_grad_hook`)."""
    hidden = step.plan.units[index].kind == "block"
    for parameter in parameters:
        piece = Piece(parameter.shape, hidden=hidden)
        torch_optimizer_step(step.recorder, [piece], step.plan.dtypes)
        _drop_gradients(step, "zero_grad", [(parameter, 1)])


def _reduce(step: _Step, size: int, copies: int) -> None:
    step.buckets_bytes += round_up(size) * copies
    step.recorder.emit(
        "all-reduce",
        "gradient bucket",
        stream="all-reduce",
        collective=collective("all_reduce", step.plan.groups.world, size),
        waits=("compute",),
    )


def _drop_gradients(step: _Step, name: str, parameters: list[tuple[Parameter, int]]) -> None:
    """Free gradients: fresh ones once added to older ones or copied to a bucket, or all."""
    held = _gradients(step.plan, parameters)
    step.recorder.emit(name, "gradients", changes=tuple(-each for each in held))


def _gradients(plan: Plan, parameters: list[tuple[Parameter, int]]) -> list[Change]:
    itemsize = plan.dtypes.gradient
    return [
        Change("gradients", p.name, round_up(p.elements * itemsize) * times)
        for p, times in parameters
        if p.trainable
    ]
