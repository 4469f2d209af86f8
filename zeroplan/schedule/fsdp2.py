"""FSDP2 and HSDP: the events of one step in the order in which the hooks issue them.

Source: torch/distributed/fsdp/_fully_shard/{_fsdp_param_group,_fsdp_collectives,_fsdp_state}.py,
torch 2.13. Two facts decide the peaks: the previous group's all-gather output lives until the
present group has been copied out (a local variable of `wait_for_unshard` holds it), and one
reduce-scatter input outlives the group that made it.
"""

from collections.abc import Iterator
from typing import Final

from zeroplan.records import dataclass, field, replace
from zeroplan.schedule.events import Pool, Recorder, Script, collective
from zeroplan.schedule.fsdp2_gather import Gather
from zeroplan.schedule.fsdp2_groups import FsdpGroup, fsdp_groups
from zeroplan.schedule.fsdp2_reduce import Reduce
from zeroplan.schedule.muon import sharded_muon_step
from zeroplan.schedule.offload import host_states, host_step, host_temporary
from zeroplan.schedule.optimizer import (
    clip_by_norm_vector,
    torch_optimizer_step,
    torch_state_changes,
)
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.reference import ShardedReference
from zeroplan.schedule.stretches import micro_steps
from zeroplan.sharding.layout import dim0_shard_shape
from zeroplan.sharding.offload import HostBuffer
from zeroplan.sharding.optimizer_states import Piece, is_muons
from zeroplan.workload.changes import Category, Change

__all__ = ["fsdp2_script"]


POOLS: Final[dict[Category, Pool]] = {
    "all_gather_buffers": "all-gather",
    "gradients": "reduce-scatter",
}
"""Flat buffers are allocated on the copy-in stream, sharded gradients on the reduce-scatter's."""


@dataclass(slots=True)
class _Step:
    """The step being written, and the communication context that its groups share."""

    plan: Plan
    recorder: Recorder
    groups: list[FsdpGroup]
    gather: Gather
    reduce: Reduce
    by_unit: dict[int, FsdpGroup] = field(default_factory=dict)
    blocks: list[FsdpGroup] = field(default_factory=list)


def fsdp2_script(plan: Plan) -> Script:
    """Write one steady-state step of FSDP2 (or HSDP) down."""
    recorder = Recorder()
    groups = fsdp_groups(plan)
    step = _Step(plan, recorder, groups, Gather(plan, recorder), Reduce(plan, recorder))
    step.by_unit = {index: group for group in groups for index in group.units}
    step.blocks = [group for group in groups if group.name == "block"]
    copy = plan.reference
    reference = None if copy is None else ShardedReference(recorder, plan, copy)
    for times, last in micro_steps(plan.micro_steps):
        with recorder.repeat(times, micro_steps=True):
            recorder.phase = "forward"
            if reference is not None:
                reference.forward()
            _forward(step)
            recorder.phase = "backward"
            _backward(step, last=last)
    recorder.phase = "optimizer"
    ranks = plan.groups.shard.ranks
    pieces = [each._replace(shape=dim0_shard_shape(each.shape, ranks)) for each in plan.pieces]
    if plan.training.gradient_clipping:
        clip_by_norm_vector(
            recorder,
            pieces,
            plan.groups.shard,
            itemsize=plan.dtypes.gradient,
            on_host=bool(plan.offload),
        )
    _update(step, pieces)
    _scale_weights(step)
    copies = reference.resident() if reference is not None else ()
    return Script(
        resident=(*_resident(step, pieces), *copies),
        items=tuple(recorder.items),
        pools=POOLS,
        host=tuple(_host(step, pieces)) if plan.offload else (),
    )


def _update(step: _Step, pieces: list[Piece]) -> None:
    """Update after backward, on the CPU where everything is there, unless it has been done."""
    plan, recorder = step.plan, step.recorder
    if plan.updates_in_backward:
        recorder.emit("optimizer step", "optimizer", waits=("reduce-scatter",))
        return
    if plan.offload:
        host_step(recorder, pieces, plan.dtypes)
    else:
        _update_on_gpu(step, pieces)
    if not plan.keeps_gradients:
        step.reduce.zero_grad(step.groups)


def _update_on_gpu(step: _Step, pieces: list[Piece]) -> None:
    """Update the shards; Muon first makes matrices whole where there are several ranks."""
    plan, rest = step.plan, pieces
    if plan.dtypes.rule.update == "muon" and plan.groups.shard.ranks > 1:
        sharded_muon_step(step.recorder, plan.pieces, plan.groups.shard, plan.dtypes.parameter)
        rest = [piece for piece in pieces if not is_muons(piece)]
    torch_optimizer_step(step.recorder, rest, plan.dtypes)


def _host(step: _Step, pieces: list[Piece]) -> Iterator[HostBuffer]:
    """List what is in host memory: each shard, its gradient and its states by themselves.

    Shards are pinned when they are made, gradients when they are copied without blocking.
    """
    held, pinned = step.plan.dtypes, step.plan.offload.pinned
    for piece in pieces:
        for name, itemsize in (("parameter shard", held.parameter), ("gradient", held.gradient)):
            size = piece.elements * itemsize
            yield HostBuffer(name=name, bytes=size, times=piece.times, pinned=pinned)
    yield host_states(pieces, held)
    yield host_temporary(pieces, held)


def _scale_weights(step: _Step) -> None:
    """Take the largest magnitude of each fp8 weight, all in one all-reduce.

    Source: `precompute_float8_dynamic_scale_for_fsdp` in torchao/float8/fsdp_utils.py (0.18.0).
    """
    ranks = step.plan.groups.shard
    weights = sum(
        group.times
        for group in step.groups
        for parameter in group.parameters.parameters
        if group.parameters.float8 and parameter.float8
    )
    if weights and ranks.ranks > 1:
        size = weights * step.plan.dtypes.parameter
        step.recorder.emit(
            "scales of fp8 weights",
            "optimizer",
            stream="all-reduce",
            collective=collective("all_reduce", ranks, size),
            waits=("compute",),
        )


def _resident(step: _Step, pieces: list[Piece]) -> tuple[Change, ...]:
    held = step.plan.dtypes
    if step.plan.offload:
        return tuple(inputs_and_buffers(step.plan))
    shards = [
        Change("parameters", g.name, g.parameters.shards_bytes(held.stored) * g.times)
        for g in step.groups
    ]
    stale = [
        Change("unsharded_parameters", g.name, g.stale_bytes * g.times)
        for g in step.groups
        if g.stale_bytes
    ]
    gradients = step.reduce.held(step.groups) if step.plan.keeps_gradients else []
    states = torch_state_changes(pieces, held)
    return (*shards, *stale, *gradients, *states, *inputs_and_buffers(step.plan))


def _forward(step: _Step) -> None:
    plan, gather = step.plan, step.gather
    for index in plan.walk_forward(step.recorder):
        group = step.by_unit[index]
        if not group.unsharded:
            if not group.in_flight:
                gather.start(group)
            gather.copy_out(group, backward=False)
            for ahead in _blocks_ahead(step, group, plan.choice.forward_prefetch_blocks):
                gather.start(ahead)
        model, loss = plan.forward_parts(index)
        step.recorder.compute("forward", plan.owner(index), model)
        if index == group.units[-1] and not group.is_root:
            gather.reshard_after_forward(group)
        if plan.units[index].kind == "head":
            _leave_root(step)
        if loss.steps:
            step.recorder.compute("loss", plan.owner(index), loss)


def _blocks_ahead(step: _Step, group: FsdpGroup, depth: int) -> list[FsdpGroup]:
    """List the blocks that a block gathers ahead by an explicit prefetch, nearest first.

    A negative depth looks back, as backward does.
    """
    if not depth or group not in step.blocks:
        return []
    here = step.blocks.index(group)
    reach = step.blocks[here + 1 : here + 1 + depth] if depth > 0 else step.blocks[:here][depth:]
    nearest = reach if depth > 0 else reversed(reach)
    return [each for each in nearest if not (each.unsharded or each.in_flight)]


def _leave_root(step: _Step) -> None:
    for group in step.groups:
        if group.is_root:
            step.gather.reshard_after_forward(group)
    step.gather.release_parked()


def _backward(step: _Step, *, last: bool) -> None:
    """Run the units backwards; a group that reads no gradient is reduced at the very end."""
    plan = step.plan
    order = [group for group in step.groups if not group.is_root]
    order += [group for group in step.groups if group.is_root]
    done: set[int] = set()
    for index in plan.walk_backward(step.recorder):
        group = step.by_unit[index]
        owner = plan.owner(index)
        loss, rest = plan.backward_parts(index)
        if loss.steps:
            step.recorder.compute("loss backward", owner, loss)
        if id(group) not in done and plan.units[index].output.differentiable:
            _pre_backward(step, group, order)
            done.add(id(group))
        step.recorder.compute("backward", owner, step.reduce.arriving(group, rest))
        if index == group.units[0] and _asks(step, group):
            _post_backward(step, group, last=last)
    for group in step.groups:
        if not _asks(step, group):
            _post_backward(step, group, last=last)
    step.reduce.finish()


def _asks(step: _Step, group: FsdpGroup) -> bool:
    """Whether a gradient of what the group reads is wanted: with it the group's backward ends."""
    entering = step.plan.units[group.units[0]].input
    return entering is not None and entering.differentiable


def _pre_backward(step: _Step, group: FsdpGroup, order: list[FsdpGroup]) -> None:
    """Wait for this group's parameters, then gather the group that comes next in backward."""
    if group.in_backward and not group.unsharded:
        if not group.in_flight:
            step.gather.start(group)
        step.gather.copy_out(group, backward=True)
    depth = step.plan.choice.backward_prefetch_blocks
    if depth and group in step.blocks[1:]:
        for ahead in _blocks_ahead(step, group, -depth):
            step.gather.start(ahead)
        return
    position = order.index(group)
    if position:
        ahead = order[position - 1]
        if ahead.in_backward and not ahead.unsharded and not ahead.in_flight:
            step.gather.start(ahead)


def _post_backward(step: _Step, group: FsdpGroup, *, last: bool) -> None:
    """Reshard a group after its backward and reduce its gradients, or accumulate them."""
    choice, recorder = step.plan.choice, step.recorder
    recorder.emit("unused", group.name, changes=tuple(step.gather.drop_unused(group)))
    synchronizes = last or choice.synchronize_gradients == "every"
    reshards = last or choice.reshard_after_backward
    if group.accumulates or not synchronizes:
        recorder.emit("accumulate", group.name, changes=tuple(step.reduce.accumulate(group)))
    freed = step.gather.reshard(group) if reshards else []
    if not _asks(step, group):  # all copies of a frozen block at once
        freed = [replace(each, bytes=each.bytes * group.times) for each in freed]
    if not synchronizes:
        recorder.emit("reshard", group.name, changes=tuple(freed))
        return
    recorder.emit(
        "reshard",
        group.name,
        changes=(*freed, *step.reduce.drop_input()),
        waits=("reduce-scatter",),
    )
    if group.trained.parameters:
        step.reduce.run(group, last=last)
