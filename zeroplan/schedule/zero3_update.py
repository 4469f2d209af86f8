"""ZeRO-3's update: the shards of some parameters at once.

Source: deepspeed/runtime/zero/stage3.py (0.19.8).
"""

from collections.abc import Iterable

from zeroplan.schedule.deepspeed_common import (
    FP64,
    accumulation_itemsize,
    transient,
)
from zeroplan.schedule.events import Recorder, Transfer, collective
from zeroplan.schedule.offload import NORMS, copied, host_states, host_step
from zeroplan.schedule.optimizer import torch_optimizer_step
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.zero3_host import on_drive
from zeroplan.sharding.optimizer_states import vector
from zeroplan.units import ALLOCATION_BYTES, FP32, round_up
from zeroplan.workload.changes import Change

__all__ = ["sub_groups", "update"]


def sub_groups(shards: Iterable[int], limit: int) -> list[list[int]]:
    """Deal parameters to what is updated at once; a group closes when it has its size.

    Source: `_create_fp16_sub_groups`.
    """
    groups: list[list[int]] = [[]]
    size = 0
    for shard in shards:
        groups[-1].append(shard)
        size += shard
        if size >= limit:
            groups.append([])
            size = 0
    return groups if groups[-1] else groups[:-1]


def update(plan: Plan, recorder: Recorder, groups: list[list[int]]) -> None:
    """Take the norm, then update sub-group by sub-group."""
    held = plan.dtypes
    ranks, accumulated = plan.groups.shard, accumulation_itemsize(plan)
    on_host = plan.offload.optimizer != "none"
    if plan.training.compute_dtype == "fp16":
        _check_overflow(plan, recorder, 0 if on_host else sum(map(sum, groups)))
    if on_host:
        _update_on_host(plan, recorder, groups)
        return
    for shards in groups:
        recorder.emit(
            "gradient norm",
            "optimizer",
            changes=transient("temporaries", "fp64 gradient", round_up(max(shards) * FP64)),
            collective=collective("all_reduce", ranks, FP64, FP64),
            traffic_bytes=sum(shards) * (accumulated + 2 * FP64),
        )
    for shards in groups:
        size = sum(shards)
        alone, wide = len(shards) == 1, accumulated == FP32
        flat = 0 if alone or wide else round_up(size * accumulated)
        fp32 = 0 if alone and wide else round_up(size * FP32)
        cast = transient("gradients", "flat part", flat)
        recorder.emit(
            "fp32 part",
            "optimizer",
            changes=(*cast[:1], Change("gradients", "fp32 part", fp32), *cast[1:]),
            traffic_bytes=size * (3 * accumulated + FP32),
        )
        torch_optimizer_step(recorder, [vector(size)], held)
        gone = Change("gradients", "fp32 part", -fp32)
        recorder.emit("drop fp32 part", "optimizer", changes=(gone,))


def _update_on_host(plan: Plan, recorder: Recorder, groups: list[list[int]]) -> None:
    """Update sub-groups on the CPU, copy each to the GPU if its parameters live there.

    With NVMe the states of a sub-group, gradient included, are read before and written after;
    parameters that live there are written (`_reassign_or_swap_out_partitioned_parameters`).
    """
    held, offload = plan.dtypes, plan.offload
    norms = sum(map(len, groups)) * ALLOCATION_BYTES
    for _ in groups:
        call = collective("all_reduce", plan.groups.shard, FP32)
        recorder.emit("gradient norm", "optimizer", collective=call)
    for shards, written in zip(groups, on_drive(plan, groups), strict=True):
        size = sum(shards)
        if offload.optimizer == "nvme":
            states = host_states([vector(size)], held).bytes
            read = Transfer("nvme", 2 * states + size * FP32)
            recorder.emit("swap states", "optimizer", stream="cpu", transfer=read)
        host_step(recorder, [vector(size)], held)
        if written:
            out = Transfer("nvme", written * held.parameter)
            recorder.emit("write parameters", "optimizer", stream="cpu", transfer=out)
        if offload.parameters == "none":
            way = copied(offload, size * held.parameter)
            recorder.emit("copy from host", "optimizer", transfer=way)
    recorder.emit("drop norms", "optimizer", changes=(Change("temporaries", NORMS, -norms),))


def _check_overflow(plan: Plan, recorder: Recorder, shards: int) -> None:
    """Look for infinities in all gradient shards at once: their magnitudes, then a flag each."""
    magnitudes = round_up(shards * accumulation_itemsize(plan))
    recorder.emit(
        "check overflow",
        "optimizer",
        changes=transient("temporaries", "overflow", magnitudes, round_up(shards)),
        collective=collective("all_reduce", plan.groups.shard, 1),
        traffic_bytes=3 * magnitudes + 2 * shards,
    )
