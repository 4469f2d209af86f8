"""DDP, and one GPU without a wrapper: whole states, gradients reduced in buckets as they arrive.

Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (2.13).
"""

from dataclasses import dataclass, field

from zeroplan.schedule.events import Collective, Recorder, Script
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.units import MIB, Size, round_up
from zeroplan.workload.liveness import Change
from zeroplan.workload.tape import Parameter

__all__ = ["ddp_script", "gradient_buckets"]

FIRST_BUCKET_BYTES = MIB
"""Cap of the first bucket while `bucket_cap_mb` is left at its default."""
DEFAULT_BUCKET_BYTES = 25 * MIB


def gradient_buckets(
    parameters: list[Parameter], itemsize: int, bucket_bytes: int
) -> list[list[Parameter]]:
    """Deal parameters, in the order in which their gradients arrive, to buckets.

    A bucket closes when its size reaches or passes its cap, so buckets are never smaller than it
    (`compute_bucket_assignment_by_size`). The order is known from the second iteration on.
    """
    cap = FIRST_BUCKET_BYTES if bucket_bytes == DEFAULT_BUCKET_BYTES else bucket_bytes
    buckets: list[list[Parameter]] = [[]]
    size = 0
    for parameter in parameters:
        buckets[-1].append(parameter)
        size += parameter.elements * itemsize
        if size >= cap:
            buckets.append([])
            size, cap = 0, bucket_bytes
    return buckets if buckets[-1] else buckets[:-1]


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    buckets: list[list[Parameter]]
    """Empty where nothing wraps the model."""
    grads_exist: bool = False
    """Whether an earlier micro-step left gradients, to which new ones are added."""
    reductions: list[int] = field(default_factory=list)

    @property
    def views(self) -> bool:
        """Whether gradients are views of the buckets."""
        return bool(self.buckets) and self.plan.choice.gradient_as_bucket_view


def ddp_script(plan: Plan) -> Script:
    """Write one steady-state step of DDP, or of one GPU alone, down."""
    arriving = [
        parameter
        for index in reversed(range(len(plan.units)))
        for _, parameters in plan.gradient_chunks(index)
        for parameter in parameters
    ]
    itemsize = plan.dtypes.gradient
    wrapped = plan.row.distributed
    buckets = gradient_buckets(arriving, itemsize, plan.choice.bucket_bytes) if wrapped else []
    step = _Step(plan, Recorder(), buckets)
    for micro_step in range(plan.micro_steps):
        last = micro_step == plan.micro_steps - 1
        reduces = wrapped and (last or plan.choice.synchronize_gradients == "every")
        _forward(step, broadcasts=reduces)
        _backward(step, reduces=reduces)
    _update(step)
    return Script(resident=_resident(step), events=tuple(step.recorder.events))


def _resident(step: _Step) -> tuple[Change, ...]:
    plan, held = step.plan, step.plan.dtypes
    sizes = [p.elements for p in plan.parameters]
    weights = sum(round_up(size * held.parameter) for size in sizes)
    buckets = [sum(p.elements for p in bucket) * held.gradient for bucket in step.buckets]
    return (
        Change("parameters", "parameters", weights),
        *(Change("gradients", "gradient bucket", round_up(size)) for size in buckets),
        *state_changes(sizes, held),
        *inputs_and_buffers(plan),
    )


def _forward(step: _Step, *, broadcasts: bool) -> None:
    """Run forward; DDP first broadcasts the module's buffers, rotary tables among them."""
    plan, recorder = step.plan, step.recorder
    recorder.phase = "forward"
    size = sum(plan.workload.buffers_bytes)
    if broadcasts and size and plan.groups.world.ranks > 1:
        collective = Collective(
            name="broadcast", group=plan.groups.world, input_bytes=size, output_bytes=size
        )
        recorder.emit("broadcast buffers", "DDP", stream="all-reduce", collective=collective)
    for index in range(len(plan.units)):
        for part in plan.forward_parts(index):
            recorder.compute("forward", plan.owner(index), part)


def _backward(step: _Step, *, reduces: bool) -> None:
    """Run backward; a bucket is reduced when the last of its gradients has arrived."""
    plan, recorder = step.plan, step.recorder
    recorder.phase = "backward"
    waiting = iter(step.buckets if reduces else ())
    bucket, arrived = next(waiting, None), 0
    for index in reversed(range(len(plan.units))):
        for part, parameters in plan.gradient_chunks(index):
            ready = recorder.compute("backward", plan.owner(index), part)
            arrived += len(parameters)
            while bucket is not None and arrived >= len(bucket):
                arrived -= len(bucket)
                _reduce(step, bucket, ready)
                bucket = next(waiting, None)
            _settle(step, parameters, reduces=reduces)
    recorder.emit("end of backward", "DDP", waits=step.reductions)
    step.reductions = []
    step.grads_exist = True


def _settle(step: _Step, parameters: tuple[Parameter, ...], *, reduces: bool) -> None:
    """Free fresh gradients that were added to older ones or copied into a bucket's view."""
    if step.grads_exist or (reduces and step.views):
        changes = tuple(_gradient(step, p, -1) for p in parameters)
        step.recorder.emit("accumulate", "gradients", changes=changes)


def _gradient(step: _Step, parameter: Parameter, sign: int) -> Change:
    size = round_up(parameter.elements * step.plan.dtypes.gradient)
    return Change("gradients", parameter.name, sign * size)


def _reduce(step: _Step, bucket: list[Parameter], ready: int) -> None:
    world = step.plan.groups.world
    size: Size = sum(p.elements for p in bucket) * step.plan.dtypes.reduce
    collective = Collective(name="all_reduce", group=world, input_bytes=size, output_bytes=size)
    event = step.recorder.emit(
        "all-reduce",
        "gradient bucket",
        stream="all-reduce",
        collective=collective if world.ranks > 1 else None,
        waits=(ready,),
    )
    step.reductions.append(event)


def _update(step: _Step) -> None:
    plan, recorder = step.plan, step.recorder
    recorder.phase = "optimizer"
    torch_optimizer_step(recorder, [p.elements for p in plan.parameters], plan.dtypes)
    separate = not step.views or (
        plan.micro_steps > 1 and plan.choice.synchronize_gradients == "last"
    )
    gone = [_gradient(step, p, -1) for p in plan.parameters] if separate else []
    recorder.emit("zero_grad", "optimizer", changes=tuple(gone))
