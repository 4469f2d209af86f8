"""FSDP1: the events of one step in the order in which the hooks issue them.

FULL_SHARD and SHARD_GRAD_OP are `reshard_after_forward`; more than one copy makes them HYBRID_SHARD
and _HYBRID_SHARD_ZERO2; a shard of one rank is NO_SHARD, as FSDP1 itself has it. Source:
torch/distributed/fsdp/_runtime_utils.py, torch 2.13. Two facts decide the peaks: a unit's gradients
exist twice while autograd makes them one flat tensor, and those of the root wait for that until the
end of backward.
"""

from collections.abc import Iterator

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.schedule.events import Recorder, Script, Segment
from zeroplan.schedule.fsdp1_collectives import Reduce, Unshard
from zeroplan.schedule.fsdp1_units import FlatUnit, checkpoint_parts, flat_units
from zeroplan.schedule.offload import host_states, host_step, host_temporary
from zeroplan.schedule.optimizer import (
    clip_by_local_norm,
    torch_optimizer_step,
    torch_state_changes,
)
from zeroplan.schedule.plan import Plan, inputs_and_buffers
from zeroplan.schedule.stretches import micro_steps
from zeroplan.sharding.layout import unique
from zeroplan.sharding.offload import HostBuffer
from zeroplan.sharding.optimizer_states import Piece, vector
from zeroplan.units import round_up
from zeroplan.workload.changes import Change

__all__ = ["fsdp1_script"]


@dataclass(slots=True)
class _Step:
    """The step being written."""

    plan: Plan
    recorder: Recorder
    units: list[FlatUnit]
    """The root, then the wrapped modules in forward order."""
    unshard: Unshard
    reduce: Reduce
    synchronizes: bool = True
    """Whether this micro-step reduces gradients."""

    @property
    def root(self) -> FlatUnit:
        """What is left of the model when blocks are wrapped."""
        return self.units[0]

    @property
    def by_index(self) -> dict[int, FlatUnit]:
        """Wrapped module by the index of the model's unit."""
        return {index: unit for unit in self.units for index in unit.units}

    @property
    def wrapped(self) -> list[FlatUnit]:
        """All of them, with those that stand inside of others."""
        return [each for unit in self.units for each in (unit, *unit.within)]

    @property
    def gradients(self) -> Change:
        """All reduced gradients."""
        size = sum(self.reduce.gradient_bytes(u) * u.times for u in self.wrapped if u.trained)
        return Change("gradients", "all", size)


def fsdp1_script(plan: Plan) -> Script:
    """Write one steady-state step of FSDP1 down."""
    if not isinstance(plan.choice.reshard_after_forward, bool):
        raise SpecError(
            f"sharding.reshard_after_forward = {plan.choice.reshard_after_forward}: fsdp1 cannot "
            "reshard to a number of ranks; use true, false or fsdp2."
        )
    _refuse_sums_on_the_host(plan)
    recorder = Recorder()
    unshard, reduce = Unshard(plan, recorder), Reduce(plan, recorder)
    step = _Step(plan, recorder, flat_units(plan), unshard, reduce)
    drops, late = not (plan.keeps_gradients or plan.offload), plan.choice.use_orig_params
    if drops and late:
        _release_gradients(step, "root pre-forward")
    for times, last in micro_steps(plan.micro_steps):
        step.synchronizes = last or plan.choice.synchronize_gradients == "every"
        with recorder.repeat(times, micro_steps=True):
            recorder.phase = "forward"
            _forward(step)
            recorder.phase = "backward"
            _backward(step)
    recorder.phase = "optimizer"
    pieces = _pieces(step)
    if plan.training.gradient_clipping:
        held = [] if plan.offload else pieces
        clip_by_local_norm(recorder, held, plan.groups.shard, itemsize=plan.dtypes.gradient)
    if plan.offload:
        host_step(recorder, pieces, plan.dtypes)
    else:
        torch_optimizer_step(recorder, pieces, plan.dtypes)
    if drops and not late:
        _release_gradients(step, "zero_grad")
    return Script(
        resident=_resident(step, pieces),
        items=tuple(recorder.items),
        host=tuple(_host(step, pieces)) if plan.offload else (),
    )


def _refuse_sums_on_the_host(plan: Plan) -> None:
    """Say that offloaded gradients that were reduced are not added to (a TODO of torch 2.13)."""
    if plan.offload and plan.micro_steps > 1 and plan.choice.synchronize_gradients == "every":
        raise SpecError(
            "sharding.synchronize_gradients = every: with offload_parameters fsdp1 does not add up "
            "gradients that it has reduced; use last, or fsdp2."
        )


def _host(step: _Step, pieces: list[Piece]) -> Iterator[HostBuffer]:
    """List what is in host memory: flat shards and their gradients, pinned, and the states.

    Source: `init_flat_param_attributes` in torch/distributed/fsdp/_flat_param.py (2.13), which
    pins whatever it is told.
    """
    for unit in step.units:
        size = unit.flat.shard_elements * step.plan.dtypes.parameter
        for name in ("parameter shard", "gradient"):
            yield HostBuffer(name=name, bytes=size, times=unit.times, pinned=True)
    yield host_states(pieces, step.plan.dtypes)
    yield host_temporary(pieces, step.plan.dtypes)


def _release_gradients(step: _Step, name: str) -> None:
    """Drop the reduced gradients: `zero_grad` does, but for the original parameters it does not.

    They are views of flat gradients that the root drops in its next pre-forward
    (`_reset_flat_param_grad_info_if_needed`).
    """
    step.recorder.emit(name, "root", changes=(-step.gradients,))


def _resident(step: _Step, pieces: list[Piece]) -> tuple[Change, ...]:
    held = step.plan.dtypes
    if step.plan.offload:
        return tuple(inputs_and_buffers(step.plan))
    outlive = step.plan.choice.use_orig_params or step.plan.keeps_gradients
    gradients = [step.gradients] if outlive else []
    shards = [
        Change("parameters", u.name, round_up(u.flat.shard_elements * u.stored) * u.times)
        for u in step.wrapped
    ]
    return (*shards, *gradients, *torch_state_changes(pieces, held), *inputs_and_buffers(step.plan))


def _pieces(step: _Step) -> list[Piece]:
    """List what the optimizer updates: the flat shards, or their pieces of original parameters."""
    if not step.plan.choice.use_orig_params:
        return [
            vector(unit.flat.shard_elements, unit.times) for unit in step.wrapped if unit.trained
        ]
    pieces = {id(unit): iter(unit.flat.pieces) for unit in step.units}
    held = [
        (next(pieces[id(unit)]) * parameter.trainable, unit.times)
        for index, unit in sorted(step.by_index.items())
        for parameter in unique(step.plan.units[index].parameters)
    ]
    return [vector(size, times) for size, times in held if size]


def _forward(step: _Step) -> None:
    """Run forward; the root is gathered first and stays, but for the cast of NO_SHARD."""
    plan, by_index = step.plan, step.by_index
    step.unshard.run(step.root)
    step.unshard.wait(step.root)
    for index in plan.walk_forward(step.recorder):
        unit = by_index[index]
        if not unit.is_root:
            step.unshard.run(unit)
            step.unshard.wait(unit)
        _bring(step, unit)
        model, loss = plan.forward_parts(index)
        step.recorder.compute("forward", plan.owner(index), model)
        if not unit.is_root:
            _post_forward(step, unit)
        if loss.steps:
            _post_forward(step, step.root)
            step.recorder.compute("loss", plan.owner(index), loss)


def _post_forward(step: _Step, unit: FlatUnit) -> None:
    """Reshard after forward: SHARD_GRAD_OP does not, and a sharded root is kept."""
    if unit.whole or (step.plan.choice.reshard_after_forward and not unit.is_root):
        step.unshard.reshard(unit)
    for each in unit.within:
        step.unshard.reshard(each)
    unit.awaits_backward = unit.answers and not unit.reentrant


def _bring(step: _Step, unit: FlatUnit) -> None:
    """Gather what is wrapped by itself inside of a unit; here it stays as long as the unit runs."""
    for each in unit.within:
        step.unshard.run(each)
    if unit.within:
        step.unshard.wait(unit)


def _backward(step: _Step) -> None:
    """Run the units backwards; the root's hook runs when all its gradients are there."""
    plan, by_index = step.plan, step.by_index
    for index in plan.walk_backward(step.recorder):
        unit = by_index[index]
        owner = plan.owner(index)
        loss, rest = plan.backward_parts(index)
        again, rest, held = checkpoint_parts(unit, rest)
        if loss.steps:
            step.recorder.compute("loss backward", owner, loss)
        if again.steps:
            _recompute(step, unit, owner, again)
        if index == unit.units[-1] and unit.answers:
            _pre_backward(step, unit, recomputes=plan.checkpointing(index) != "none")
        step.recorder.compute("backward", owner, rest)
        if not unit.is_root and unit.answers:
            _post_backward(step, unit)
        if held.steps:
            step.recorder.compute("release", owner, held)
    _post_backward(step, step.root)
    if step.synchronizes or step.plan.choice.reshard_after_forward:
        for unit in step.units:  # frozen blocks too, to which no gradient came
            with step.recorder.repeat(unit.times):
                step.unshard.reshard(unit)
    step.reduce.finish()
    if plan.offload and step.synchronizes:
        _send_gradients(step)


def _send_gradients(step: _Step) -> None:
    """Let reduced gradients go that were sent to the host, where they are from here on."""
    _release_gradients(step, "end of backward")
    for unit in step.units:
        unit.has_gradient = False


def _recompute(step: _Step, unit: FlatUnit, owner: str, again: Segment) -> None:
    """Run a reentrant checkpoint's forward with its hooks, which gather and reshard once more."""
    step.unshard.run(unit)
    step.unshard.wait(unit)
    _bring(step, unit)
    step.recorder.compute("recompute", owner, again)
    _post_forward(step, unit)


def _pre_backward(step: _Step, unit: FlatUnit, *, recomputes: bool) -> None:
    """Wait for this unit's parameters, then gather the one that comes next in backward.

    What is wrapped inside is gathered once more for a recomputation, which stops in the last of it.
    """
    step.unshard.run(unit)
    unit.awaits_backward = False
    if step.plan.choice.backward_prefetch == "pre":
        _prefetch(step, unit)
    step.unshard.wait(unit)
    if recomputes and not unit.reentrant:
        _bring(step, unit)
        for each in unit.within[:-1]:
            step.unshard.reshard(each)
    _bring(step, unit)


def _prefetch(step: _Step, unit: FlatUnit) -> None:
    """Gather the unit whose forward ended before this one's, if its backward is still to come."""
    order = [*step.units[1:], step.root]
    position = order.index(unit)
    if position and order[position - 1].awaits_backward:
        step.unshard.run(order[position - 1])


def _post_backward(step: _Step, unit: FlatUnit) -> None:
    """Flatten the gradients, reshard, reduce.

    Without reduction SHARD_GRAD_OP keeps its parameters for the next micro-step.
    """
    choice = step.plan.choice
    ended = (unit,) if unit.asks or unit.trained else ()
    for each in (*unit.within, *ended):
        step.reduce.flatten(each)
        if step.synchronizes or choice.reshard_after_forward or each.whole:
            step.unshard.reshard(each)
    if choice.backward_prefetch == "post":
        _prefetch(step, unit)
    for each in (*unit.within, *ended):
        if each.trained and step.synchronizes:
            step.reduce.run(each)
        elif each.trained:
            step.reduce.accumulate(each)
