"""FSDP2 sends gradients out: reduce-scatter, all-reduce across copies, the sharded gradient.

Source: `foreach_reduce` in torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py,
`FSDPParamGroup` beside it, torch 2.13.
"""

from collections.abc import Iterable

from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective, Recorder, Segment, Stream, Transfer, collective
from zeroplan.schedule.fsdp2_groups import FsdpGroup
from zeroplan.schedule.offload import copied
from zeroplan.schedule.optimizer import torch_optimizer_step
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.layout import dim0_shard_shape
from zeroplan.sharding.optimizer_states import Piece
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Change
from zeroplan.workload.tape import Parameter

__all__ = ["Reduce"]

REDUCED = "reduce-scatter output"


@dataclass(slots=True)
class Reduce:
    """Reduces gradients to their shards."""

    plan: Plan
    recorder: Recorder
    input_bytes: Size = 0
    """The newest reduce-scatter input, alive until the next group's reduction. [B]"""
    retained_bytes: Size = 0
    """All-reduce buffers that live until the end of backward (HSDP). [B]"""

    def gradients(self, group: FsdpGroup, itemsize: int) -> list[Change]:
        """List a group's unsharded gradients, one storage each."""
        return _of(group.trained.parameters, itemsize)

    def arriving(self, group: FsdpGroup, part: Segment) -> Segment:
        """Let each gradient go that autograd adds to one of earlier micro-steps as it comes.

        It does so where those are kept in the dtype in which it comes (no_sync).
        """
        held = self.plan.dtypes
        if not group.accumulates or held.reduce != held.compute:
            return part
        changes = [
            change
            for step in part.steps
            for change in (*step.changes, *(-each for each in _of(step.gradients, held.compute)))
        ]
        return replace(part, changes=tuple(changes))

    def accumulate(self, group: FsdpGroup) -> list[Change]:
        """Add the new gradients to the unsharded ones of earlier micro-steps (no_sync).

        They are kept in the reduce dtype; where that is the compute dtype, autograd adds them up.
        """
        held = self.plan.dtypes
        first, group.accumulates = not group.accumulates, True
        if held.reduce == held.compute:
            return []
        fresh = self.gradients(group, held.compute)
        if not first:
            return [-each for each in fresh]
        kept = self.gradients(group, held.reduce)
        return [c for new, old in zip(kept, fresh, strict=True) for c in (new, -old)]

    def run(self, group: FsdpGroup, *, last: bool) -> None:
        """Copy the gradients into one buffer, reduce-scatter it, all-reduce across copies, cast.

        Every gradient goes with the copy-in but the last one, which a loop variable of
        `foreach_reduce` holds until that returns, where there are several ranks.
        """
        held, part = self.plan.dtypes, group.trained
        ranks = self.plan.groups.shard
        loops = ranks.ranks > 1
        itemsize = held.reduce if group.accumulates else held.compute
        grads = [-each for each in self.gradients(group, itemsize)]
        group.accumulates = False
        buffer = part.gathered_bytes(held.reduce)
        out = part.flat_shard_bytes(held.reduce)
        self.recorder.emit(
            "reduce-scatter copy-in",
            group.name,
            changes=(
                Change("reduce_scatter_buffers", "reduce-scatter input", buffer),
                *(grads[:-1] if loops else grads),
                Change("gradients", self._output_owner(group), out),
            ),
            traffic_bytes=2 * buffer,
        )
        self.input_bytes = buffer
        self.recorder.emit(
            "reduce-scatter",
            group.name,
            stream="reduce-scatter",
            collective=Collective(
                name="reduce_scatter",
                group=ranks,
                input_bytes=part.shard_elements * ranks.ranks * held.reduce,
                output_bytes=part.shard_elements * held.reduce,
            )
            if loops
            else None,
            waits=("compute",),
        )
        self._across_copies(group, out, last=last)
        if loops:
            self.recorder.emit("drop the last gradient", group.name, changes=(grads[-1],))

    def _across_copies(self, group: FsdpGroup, out: Size, *, last: bool) -> None:
        replicate = self.plan.groups.replicate
        name, owner = group.name, self._output_owner(group)
        if replicate.ranks > 1:
            if self.plan.choice.all_reduce == "last" and not last:
                gone = (Change("gradients", owner, -out),) if group.partial_bytes else ()
                group.partial_bytes = out
                self.recorder.emit("add partial gradient", name, changes=gone)
                return
            size = group.trained.shard_elements * self.plan.dtypes.reduce
            gone = (Change("gradients", owner, -group.partial_bytes),)
            group.partial_bytes = 0
            self.recorder.emit(
                "all-reduce",
                name,
                stream="all-reduce",
                changes=gone,
                collective=collective("all_reduce", replicate, size),
                waits=("reduce-scatter",),
            )
        self._assign(group, out)

    def _assign(self, group: FsdpGroup, out: Size) -> None:
        """Cast to the parameters' dtype and add to the sharded gradient of earlier micro-steps.

        HSDP keeps every group's all-reduce buffer until the end of backward.
        """
        held, owner = self.plan.dtypes, self._output_owner(group)
        changes: list[Change] = []
        if self.plan.offload:
            self._to_host(group, out)
            return
        if held.reduce != held.gradient:
            gradient = group.trained.flat_shard_bytes(held.gradient)
            changes.append(Change("gradients", group.name, gradient))
            if group.has_gradient:
                changes.append(Change("gradients", group.name, -gradient))
        if owner == REDUCED and self.plan.groups.replicate.ranks > 1:
            self.retained_bytes += out * group.times
        elif owner == REDUCED:
            changes.append(Change("gradients", REDUCED, -out))
        group.has_gradient = True
        if changes:
            self.recorder.emit("assign gradient", group.name, changes=tuple(changes))
        if self.plan.updates_in_backward:
            self._update(group)

    def _update(self, group: FsdpGroup) -> None:
        """Update a group's shards one by one where they were reduced, then drop their gradient."""
        hidden = group.name == "block"
        for p in group.trained.parameters:
            piece = Piece(dim0_shard_shape(p.shape, group.trained.ranks), hidden=hidden)
            held = self.plan.dtypes
            torch_optimizer_step(self.recorder, [piece], held, stream="reduce-scatter")
        size = group.trained.flat_shard_bytes(self.plan.dtypes.gradient)
        gone = Change("gradients", group.name, -size)
        self.recorder.emit("zero_grad", group.name, changes=(gone,))
        group.has_gradient = False

    def _to_host(self, group: FsdpGroup, out: Size) -> None:
        """Cast to the parameters' dtype and copy to the host, where a sum is made.

        The copy runs on the stream of the reduction; the host waits for it where it has to add or
        where the copy is not to pinned memory.
        """
        held, offload = self.plan.dtypes, self.plan.offload
        copies = self.plan.groups.replicate.ranks > 1
        elements = group.trained.shard_elements
        size = group.trained.flat_shard_bytes(held.gradient)
        cast = Change("gradients", REDUCED, size if held.reduce != held.gradient else 0)
        gone = Change("gradients", REDUCED, 0 if copies else -out)
        if copies:
            self.retained_bytes += out * group.times
        stream: Stream = "all-reduce" if copies else "reduce-scatter"
        self.recorder.emit(
            "copy to host",
            group.name,
            stream=stream,
            changes=(cast, gone, -cast),
            transfer=copied(offload, elements * held.gradient),
        )
        if group.has_gradient:
            self.recorder.emit(
                "add on the host",
                group.name,
                stream="cpu",
                transfer=Transfer("update", 3 * elements * held.gradient),
                waits=(stream,),
            )
        if group.has_gradient or not offload.pinned:
            self.recorder.emit("wait for the host", group.name, waits=(stream, "cpu"))
        group.has_gradient = True

    def drop_input(self) -> list[Change]:
        """Free the newest reduce-scatter input."""
        size, self.input_bytes = self.input_bytes, 0
        return [Change("reduce_scatter_buffers", "reduce-scatter input", -size)]

    def finish(self) -> None:
        """End a backward: wait for every reduction, drop what waited for it."""
        retained = Change("gradients", REDUCED, -self.retained_bytes)
        self.recorder.emit(
            "end of backward",
            "root",
            changes=(*self.drop_input(), retained),
            waits=("reduce-scatter", "all-reduce"),
        )
        self.retained_bytes = 0

    def held(self, groups: list[FsdpGroup]) -> list[Change]:
        """List the sharded gradients."""
        itemsize = self.plan.dtypes.gradient
        if self.plan.offload:
            return []
        return [
            Change("gradients", g.name, g.trained.flat_shard_bytes(itemsize) * g.times)
            for g in groups
        ]

    def zero_grad(self, groups: list[FsdpGroup]) -> None:
        """Drop the sharded gradients."""
        gone = tuple(-each for each in self.held(groups))
        self.recorder.emit("zero_grad", "optimizer", changes=gone)

    def _output_owner(self, group: FsdpGroup) -> str:
        """Name a reduce-scatter output: the sharded gradient itself where no cast or sum follows."""
        held = self.plan.dtypes
        alone = not (group.has_gradient or self.plan.offload)
        is_gradient = held.reduce == held.gradient and alone
        return group.name if is_gradient else REDUCED


def _of(parameters: Iterable[Parameter], itemsize: int) -> list[Change]:
    return [
        Change("unsharded_gradients", p.name, round_up(p.elements * itemsize))
        for p in parameters
        if p.trainable
    ]
