"""ZeRO-1 and ZeRO-2 with the optimizer in host memory.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections import Counter
from collections.abc import Iterator

from zeroplan.records import replace
from zeroplan.schedule.deepspeed_step import Step
from zeroplan.schedule.events import collective
from zeroplan.schedule.offload import NORMS, copied, host_states, host_step, host_temporary
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.offload import HostBuffer
from zeroplan.sharding.optimizer_states import vector
from zeroplan.units import ALLOCATION_BYTES, FP32, round_up
from zeroplan.workload.changes import Change

__all__ = ["as_run", "host_buffers", "update_on_host"]


def as_run(plan: Plan) -> Plan:
    """Return a plan with contiguous gradients, which offloading needs."""
    settings = plan.choice.deepspeed
    if settings.contiguous_gradients or not plan.offload:
        return plan
    choice = replace(plan.choice, deepspeed=replace(settings, contiguous_gradients=True))
    return replace(plan, choice=choice)


def host_buffers(step: Step) -> Iterator[HostBuffer]:
    """List what is in host memory: master, gradient and a 16-bit copy of the part, and its states.

    Gradients that accumulate are there by parameter, those at the borders of the part whole.
    """
    plan, held, shard = step.plan, step.plan.dtypes, step.group.shard
    pinned = plan.offload.pinned
    for name, size in (
        ("master copy", shard * held.master),
        ("gradient", shard * FP32),
        ("copy of the parameters", shard * held.parameter),
        ("gradient on its way", max(step.group.elements) * held.compute),
    ):
        yield HostBuffer(name=name, bytes=size, pinned=pinned)
    if plan.row.divides_gradients and plan.micro_steps > 1 and not step.reduction.compact:
        sizes = Counter(
            elements
            for elements, piece in zip(step.group.elements, step.group.fullest_pieces, strict=True)
            if piece
        )
        for elements, times in sizes.items():
            yield HostBuffer(
                name="accumulated gradient",
                bytes=elements * held.compute,
                times=times,
                pinned=pinned,
            )
    yield host_states([vector(shard)], held, master=False)
    yield host_temporary([vector(shard)], held)


def update_on_host(step: Step) -> None:
    """Update this rank's part on the CPU, copy it to the GPU, gather.

    Norm and overflow are known since the gradients were copied to the host.
    """
    plan, recorder, held = step.plan, step.recorder, step.plan.dtypes
    ranks, shard = plan.groups.shard, step.group.shard
    for name, size in (("check overflow", 1 * (held.compute < FP32)), ("gradient norm", FP32)):
        if size:
            call = collective("all_reduce", ranks, size)
            recorder.emit(name, "optimizer", collective=call)
    host_step(recorder, [vector(shard)], held)
    size = shard * held.parameter
    recorder.emit("copy from host", "optimizer", transfer=copied(plan.offload, size))
    part = round_up(shard * FP32) if step.reduction.compact else 0
    norms = sum(elements > 0 for elements in step.group.fullest_pieces) * ALLOCATION_BYTES
    recorder.emit(
        "all-gather parameters",
        "optimizer",
        changes=(
            Change("gradients", "fp32 part", -part),
            Change("temporaries", NORMS, -norms),
        ),
        collective=collective("all_gather", ranks, size, size * ranks.ranks),
    )
