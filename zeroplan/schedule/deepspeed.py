"""DeepSpeed: which of its optimizers runs, and the two that keep gradients whole.

Without ZeRO (`FP16_Optimizer`, `FP16_UnfusedOptimizer`) gradients are all-reduced whole at the end
of the last backward. ZeRO-1 that accumulates in fp32 (`BF16_Optimizer`) does the same with one fp32
vector of all gradients, then updates its part. Source: deepspeed/runtime/engine.py,
fp16/{fused,unfused}_optimizer.py, bf16_optimizer.py (0.19.8).
"""

from typing import Final

from zeroplan.records import dataclass
from zeroplan.schedule.deepspeed_buckets import bucket_script
from zeroplan.schedule.deepspeed_common import (
    accumulation_itemsize,
    flat_parameters,
    forward,
    fresh_category,
    transient,
    wire_itemsize,
)
from zeroplan.schedule.events import Recorder, Script, collective
from zeroplan.schedule.optimizer import state_changes, torch_optimizer_step
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.reference import reference_model
from zeroplan.schedule.stretches import micro_steps
from zeroplan.schedule.zero3 import zero3_script
from zeroplan.sharding.layout import flat_shard_elements
from zeroplan.sharding.optimizer_states import vector
from zeroplan.units import FP32, Size, round_up
from zeroplan.workload.changes import Change

__all__ = ["deepspeed_script"]

ELEMENTS_PER_BUFFER: Final = 500_000_000
"""MEMORY_OPT_ALLREDUCE_SIZE of engine.py."""


def deepspeed_script(plan: Plan) -> Script:
    """Write one steady-state step of DeepSpeed, with or without ZeRO, down."""
    if plan.row.divides_parameters:
        return zero3_script(plan)
    step = _Step(plan, Recorder())
    if plan.row.divides_optimizer and not step.accumulates_whole:
        return bucket_script(plan)
    return _whole_gradients_script(step)


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
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
            and not self.plan.offload
            and self.plan.training.compute_dtype == "bf16"
            and accumulation_itemsize(self.plan) == FP32
        )

    @property
    def elements(self) -> int:
        """What is trained of the model [elements]."""
        return sum(p.elements * times for p, times in self.plan.trained)

    @property
    def shard(self) -> Size:
        """What the optimizer updates here, where it is divided [elements]."""
        return flat_shard_elements(self.elements, self.plan.groups.shard.ranks)

    def each(self, itemsize: int) -> Size:
        """Sum a tensor per trained parameter, each in a storage of its own [B]."""
        return sum(round_up(p.elements * itemsize) * times for p, times in self.plan.trained)

    def drop_gradients(self) -> Change:
        """Free the gradients that autograd put down."""
        size = self.each(self.plan.dtypes.compute)
        return Change(fresh_category(self.plan), "gradients", -size)


def _whole_gradients_script(step: _Step) -> Script:
    plan = step.plan
    for times, _ in micro_steps(plan.micro_steps):
        with step.recorder.repeat(times, micro_steps=True):
            forward(step.recorder, plan)
            _backward(step)
    _reduce(step)
    step.recorder.phase = "optimizer"
    if step.accumulates_whole:
        _update_part(step)
    else:
        _update_whole(step)
    return Script(resident=_resident(step), items=tuple(step.recorder.items))


def _resident(step: _Step) -> tuple[Change, ...]:
    plan, held = step.plan, step.plan.dtypes
    if step.accumulates_whole:
        whole = step.shard * plan.groups.shard.ranks
        states = [
            Change("parameters", "flat parameters", round_up(whole * held.parameter)),
            Change("gradients", "fp32 gradients", round_up(whole * FP32)),
            *state_changes([vector(step.shard)], held),
        ]
    else:
        states = [
            Change("parameters", "parameters", step.each(held.parameter)),
            *state_changes(plan.pieces, held),
        ]
    frozen = Change("parameters", "frozen parameters", plan.frozen_bytes)
    return (frozen, *states, *reference_model(plan), *inputs_and_buffers(plan))


def _backward(step: _Step) -> None:
    """Run backward, then add the gradients of this micro-step to the fp32 ones, if there are."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes.compute
    recorder.phase = "backward"
    for index in plan.walk_backward(recorder):
        for part, parameters in plan.gradient_chunks(index):
            recorder.compute("backward", plan.owner(index), part)
            if step.grads_exist and parameters:
                size = sum(round_up(p.elements * held) for p in parameters)
                gone = Change(fresh_category(plan), "gradients", -size)
                recorder.emit("accumulate", "gradients", changes=(gone,))
    step.grads_exist = True
    if step.accumulates_whole:
        largest = max(p.elements for p, _ in plan.trained)
        recorder.emit(
            "accumulate in fp32",
            "gradients",
            changes=transient("temporaries", "fp32 gradient", round_up(largest * FP32)),
            traffic_bytes=step.elements * (held + 4 * FP32),
        )


def _reduce(step: _Step) -> None:
    """All-reduce gradients by the buffer (`buffered_allreduce_fallback`): nothing overlaps it.

    A buffer of several tensors is a copy of them; the wire's dtype may need another copy.
    """
    plan = step.plan
    itemsize, wire = plan.dtypes.compute, wire_itemsize(plan)
    buffers = _buffers(step)
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
            collective=collective("all_reduce", plan.groups.world, elements * wire),
            traffic_bytes=4 * (flat + cast),
        )


def _buffers(step: _Step) -> list[list[int]]:
    """Deal gradients to buffers; one closes when it has passed its size (`allreduce_no_retain`)."""
    buffers: list[list[int]] = [[]]
    size = 0
    for parameter in flat_parameters(step.plan, trained=True):
        buffers[-1].append(parameter.elements)
        size += parameter.elements
        if size > ELEMENTS_PER_BUFFER:
            buffers.append([])
            size = 0
    return buffers if buffers[-1] else buffers[:-1]


def _update_whole(step: _Step) -> None:
    """Copy gradients to fp32, update every master, copy the parameters back.

    DeepSpeed's fused Adam gets one fp32 vector, made of fp32 gradients that all exist with it;
    other optimizers get an fp32 gradient a parameter, and the low-precision ones stay meanwhile.
    """
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    drop, wide = step.drop_gradients(), step.each(FP32) if held.master else 0
    copied, last = [Change("gradients", "fp32 gradients", wide)], [drop]
    if held.master and held.rule.update == "adam" and held.implementation == "fused":
        flat = round_up(step.elements * FP32)
        copied += [
            Change("gradients", "fp32 vector", flat),
            Change("gradients", "fp32 gradients", -wide),
            drop,
        ]
        last, wide = [], flat
    recorder.emit("fp32 gradients", "optimizer", changes=tuple(copied), traffic_bytes=3 * wide)
    if plan.training.gradient_clipping and not held.master:
        _clip_fp32(step)
    torch_optimizer_step(recorder, plan.pieces, held)
    gone = Change("gradients", "fp32 gradients", -wide)
    recorder.emit("zero_grad", "optimizer", changes=(gone, *last))


def _clip_fp32(step: _Step) -> None:
    """Average the ranks' norms, equal but for experts (`clip_grad_norm_` in runtime/utils.py)."""
    step.recorder.emit(
        "clip gradients",
        "optimizer",
        collective=collective("all_reduce", step.plan.groups.world, FP32),
        traffic_bytes=3 * step.each(FP32),
    )


def _update_part(step: _Step) -> None:
    """Update this rank's part from its part of the fp32 vector, then gather the parameters."""
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    torch_optimizer_step(recorder, [vector(step.shard)], held)
    group, size = plan.groups.shard, step.shard * held.parameter
    recorder.emit(
        "all-gather parameters",
        "optimizer",
        collective=collective("all_gather", group, size, size * group.ranks),
    )
    recorder.emit("zero_grad", "optimizer", changes=(step.drop_gradients(),))
