"""DeepSpeed: which of its optimizers runs, and the two that keep gradients whole.

Without ZeRO (`FP16_Optimizer`, `FP16_UnfusedOptimizer`) gradients are all-reduced whole at the end
of the last backward. ZeRO-1 that accumulates in fp32 (`BF16_Optimizer`) does the same with one fp32
vector of all gradients, then updates its part. Source: deepspeed/runtime/engine.py,
fp16/{fused,unfused}_optimizer.py, bf16_optimizer.py (0.19.8).
"""

from dataclasses import dataclass, field

from zeroplan.schedule.deepspeed_buckets import bucket_script
from zeroplan.schedule.deepspeed_common import (
    FP32,
    accumulation_itemsize,
    collective,
    fresh_category,
    run_forward,
    transient,
    wire_itemsize,
)
from zeroplan.schedule.events import Recorder, Script
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.zero3 import zero3_script
from zeroplan.sharding.layout import flat_shard_elements
from zeroplan.units import Size, round_up
from zeroplan.workload.liveness import Change

__all__ = ["deepspeed_script"]

ELEMENTS_PER_BUFFER = 500_000_000
"""MEMORY_OPT_ALLREDUCE_SIZE of engine.py."""


def deepspeed_script(plan: Plan) -> Script:
    """Write one steady-state step of DeepSpeed, with or without ZeRO, down."""
    if plan.row.divides_parameters:
        return zero3_script(plan)
    step = _Step(plan)
    if plan.row.divides_optimizer and not step.accumulates_whole:
        return bucket_script(plan)
    return _whole_gradients_script(step)


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder = field(default_factory=Recorder)
    grads_exist: bool = False
    """Whether an earlier micro-step left gradients, to which new ones are added."""

    @property
    def accumulates_whole(self) -> bool:
        """Whether `BF16_Optimizer` keeps an fp32 gradient of the whole model.

        `_do_optimizer_sanity_check`: bf16, fp32 accumulation and only the optimizer divided.
        """
        row = self.plan.row
        return (
            row.divides_optimizer
            and not row.divides_gradients
            and self.plan.training.compute_dtype == "bf16"
            and accumulation_itemsize(self.plan) == FP32
        )

    @property
    def sizes(self) -> list[int]:
        """Elements of each parameter."""
        return [p.elements for p in self.plan.parameters]

    @property
    def shard(self) -> Size:
        """Elements that the optimizer updates here."""
        return flat_shard_elements(self.plan.parameters, self.plan.groups.shard.ranks)

    def gradients(self, sign: int) -> tuple[Change, ...]:
        """List all gradients, each in its own storage."""
        held = self.plan.dtypes.compute
        return tuple(
            Change(fresh_category(self.plan), p.name, sign * round_up(p.elements * held))
            for p in self.plan.parameters
        )


def _whole_gradients_script(step: _Step) -> Script:
    plan = step.plan
    for _ in range(plan.micro_steps):
        run_forward(plan, step.recorder)
        _backward(step)
    _reduce(step)
    step.recorder.phase = "optimizer"
    if step.accumulates_whole:
        _update_part(step)
    else:
        _update_whole(step)
    return Script(resident=_resident(step), events=tuple(step.recorder.events))


def _resident(step: _Step) -> tuple[Change, ...]:
    plan, held = step.plan, step.plan.dtypes
    if step.accumulates_whole:
        whole = step.shard * plan.groups.shard.ranks
        states = [
            Change("parameters", "flat parameters", round_up(whole * held.parameter)),
            Change("gradients", "fp32 gradients", round_up(whole * FP32)),
            *state_changes([step.shard], held),
        ]
    else:
        weights = sum(round_up(size * held.parameter) for size in step.sizes)
        states = [
            Change("parameters", "parameters", weights),
            *state_changes(step.sizes, held),
        ]
    return (*states, *inputs_and_buffers(plan))


def _backward(step: _Step) -> None:
    """Run backward, then add the gradients of this micro-step to the fp32 ones, if there are."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes.compute
    recorder.phase = "backward"
    for index in reversed(range(len(plan.units))):
        for part, parameters in plan.gradient_chunks(index):
            recorder.compute("backward", plan.owner(index), part)
            if step.grads_exist:
                gone = [round_up(p.elements * held) for p in parameters]
                changes = tuple(Change(fresh_category(plan), "gradient", -size) for size in gone)
                recorder.emit("accumulate", plan.owner(index), changes=changes)
    step.grads_exist = True
    if step.accumulates_whole:
        casts = [round_up(size * FP32) for size in step.sizes]
        recorder.emit(
            "accumulate in fp32",
            "gradients",
            changes=transient("temporaries", "fp32 gradient", max(casts)),
            traffic_bytes=sum(step.sizes) * (held + 4 * FP32),
        )


def _reduce(step: _Step) -> None:
    """All-reduce gradients by the buffer (`buffered_allreduce_fallback`): nothing overlaps it.

    A buffer of several tensors is a copy of them; another one is needed in the dtype of the wire.
    """
    plan = step.plan
    itemsize, wire = plan.dtypes.compute, wire_itemsize(plan)
    buffers = _buffers(step.sizes)
    if step.accumulates_whole:
        itemsize, buffers = FP32, [[int(step.shard * plan.groups.shard.ranks)]]
    for tensors in buffers:
        elements = sum(tensors)
        flat = round_up(elements * itemsize) if len(tensors) > 1 else 0
        cast = round_up(elements * wire) if wire != itemsize else 0
        step.recorder.emit(
            "all-reduce",
            "gradients",
            changes=transient("reduce_scatter_buffers", "gradients", flat, cast),
            collective=collective(
                "all_reduce", plan.groups.world, elements * wire, elements * wire
            ),
            traffic_bytes=4 * (flat + cast),
        )


def _buffers(sizes: list[int]) -> list[list[int]]:
    """Deal tensors to buffers; one closes when it has passed its size (`allreduce_no_retain`)."""
    buffers: list[list[int]] = [[]]
    for size in sizes:
        buffers[-1].append(size)
        if sum(buffers[-1]) > ELEMENTS_PER_BUFFER:
            buffers.append([])
    return buffers if buffers[-1] else buffers[:-1]


def _update_whole(step: _Step) -> None:
    """Copy gradients to fp32, update every master, copy the parameters back.

    DeepSpeed's fused Adam gets them flat, and casts each before it flattens them all; any other
    optimizer gets one fp32 gradient a parameter and keeps the low-precision ones meanwhile.
    """
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    casts = [round_up(size * FP32) for size in step.sizes] if held.master else []
    copied = tuple(Change("gradients", "fp32 gradient", size) for size in casts)
    freed = tuple(Change("gradients", "fp32 gradient", -size) for size in casts)
    gone = step.gradients(-1)
    if held.implementation == "fused" and held.master:
        flat = round_up(sum(step.sizes) * FP32)
        copied += (Change("gradients", "fp32 gradients", flat), *freed, *gone)
        freed, gone = (Change("gradients", "fp32 gradients", -flat),), ()
    if copied:
        recorder.emit("fp32 gradients", "optimizer", changes=copied, traffic_bytes=2 * sum(casts))
    torch_optimizer_step(recorder, step.sizes, held)
    recorder.emit("zero_grad", "optimizer", changes=(*freed, *gone))


def _update_part(step: _Step) -> None:
    """Update this rank's part from its part of the fp32 vector, then gather the parameters."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    torch_optimizer_step(recorder, [step.shard], held)
    group, size = plan.groups.shard, step.shard * held.parameter
    recorder.emit(
        "all-gather parameters",
        "optimizer",
        collective=collective("all_gather", group, size, size * group.ranks),
    )
    recorder.emit("zero_grad", "optimizer", changes=step.gradients(-1))
