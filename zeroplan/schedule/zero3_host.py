"""What ZeRO-3 holds off the GPU: in host memory and on a drive.

Source: `_create_fp32_partitions`, `initialize_optimizer_states`, `_setup_for_real_optimizer` and
`_create_param_groups_fp16_flat_cpu_memory` in deepspeed/runtime/zero/stage3.py,
deepspeed/runtime/swap_tensor (0.19.8).
"""

from collections.abc import Iterator
from itertools import accumulate

from zeroplan.schedule.deepspeed_common import accumulation_itemsize
from zeroplan.schedule.offload import host_states, host_temporary
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.offload import HostBuffer
from zeroplan.sharding.optimizer_states import vector
from zeroplan.units import FP32

__all__ = ["host_buffers", "nvme_bytes", "on_drive"]


def host_buffers(plan: Plan, groups: list[list[int]]) -> Iterator[HostBuffer]:
    """List what a rank holds in host memory; groups are the shards that are updated at once.

    Gradients accumulate in one pinned vector and are cast to fp32 for the update. Masters and
    states are not pinned. Parameters are, even where pinning is switched off for them. What the
    library for asynchronous I/O locks in memory takes what it holds.
    """
    offload, held = plan.offload, plan.dtypes
    sizes = [sum(shards) for shards in groups]
    if offload.parameters != "none":
        yield HostBuffer(
            name="parameter shards", bytes=_in_cpu(plan, sizes) * held.parameter, pinned=True
        )
    if offload.parameters == "nvme":
        yield from _parameter_buffers(plan, groups)
    if offload.optimizer == "none":
        return
    yield HostBuffer(
        name="gradient shards",
        bytes=sum(sizes) * accumulation_itemsize(plan),
        pinned=offload.pinned,
    )
    if offload.optimizer == "nvme":
        settings = plan.choice.deepspeed
        yield HostBuffer(
            name="buffers of the optimizer",
            bytes=max(sizes) * FP32,
            times=settings.offload_optimizer_buffer_count,
        )
        return
    for size in sizes:
        yield HostBuffer(name="fp32 gradient", bytes=size * FP32, pinned=offload.pinned)
    yield host_states([vector(size) for size in sizes], held)
    yield host_temporary([vector(max(sizes))], held)


def nvme_bytes(plan: Plan, groups: list[list[int]]) -> int:
    """Return what a rank holds on a drive: states with their gradient, parameters over the limit.

    A limit below all parameters of a rank sends whole sub-groups there.
    """
    offload, held = plan.offload, plan.dtypes
    sizes = [sum(shards) for shards in groups]
    total = 0
    if offload.optimizer == "nvme":
        states = host_states([vector(size) for size in sizes], held)
        total += int(states.bytes) + sum(sizes) * FP32
    if offload.parameters == "nvme":
        total += sum(on_drive(plan, groups)) * held.parameter
    return total


def _in_cpu(plan: Plan, sizes: list[int]) -> int:
    """Return the size of the flat buffer of parameters in host memory [elements]."""
    if plan.offload.parameters == "cpu":
        return sum(sizes)
    return min(sum(sizes), plan.choice.deepspeed.offload_param_max_in_cpu)


def on_drive(plan: Plan, groups: list[list[int]]) -> list[int]:
    """Return what of each sub-group's parameters lives on a drive [elements].

    Whole sub-groups fill the buffer in host memory, in order; what it has no room for goes out.
    """
    sizes = [sum(shards) for shards in groups]
    if plan.offload.parameters != "nvme":
        return [0] * len(sizes)
    room = _in_cpu(plan, sizes)
    ends = accumulate(sizes)
    return [0 if end <= room else size for size, end in zip(sizes, ends, strict=True)]


def _parameter_buffers(plan: Plan, groups: list[list[int]]) -> Iterator[HostBuffer]:
    """List what parameters go through on their way to the drive.

    One more, of the largest sub-group, is for parameters that were updated.
    """
    settings, itemsize = plan.choice.deepspeed, plan.dtypes.parameter
    yield HostBuffer(
        name="buffers of parameters",
        bytes=settings.offload_param_buffer_size * itemsize,
        times=settings.offload_param_buffer_count,
    )
    if any(on_drive(plan, groups)):
        largest = max(sum(shards) for shards in groups)
        yield HostBuffer(name="buffer of updated parameters", bytes=largest * itemsize)
