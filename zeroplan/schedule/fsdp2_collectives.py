"""FSDP2's two halves: parameters in (all-gather, copy-out), gradients out (reduce-scatter).

Source: `foreach_all_gather`, `foreach_all_gather_copy_out` and `foreach_reduce` in
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `FSDPParamGroup` beside it, torch 2.13.
"""

from collections.abc import Iterator

from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective, Recorder
from zeroplan.schedule.fsdp2_groups import FsdpGroup
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.groups import contiguous
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Change

__all__ = ["Gather", "Reduce"]

COPY_OUT = "copy-out"
"""Mark of the last copy-out: an all-gather waits for it, so at most one runs ahead."""

CAST = "cast of the shard"
GATHERED = "all-gather output"
REDUCED = "reduce-scatter output"


@dataclass(slots=True)
class Gather:
    """Gathers parameters and drops them."""

    plan: Plan
    recorder: Recorder
    parked: Size = 0
    """All-gather output that lives until the next group is copied out. [B]"""

    def start(self, group: FsdpGroup) -> None:
        """Cast the shard, copy it into the flat buffer and issue the all-gather."""
        held, part = self.plan.dtypes, group.parameters
        ranks = self.plan.groups.shard
        group.in_flight = True
        if ranks.ranks == 1:
            return
        shard = part.shard_elements
        if group.kept_bytes:
            ranks = contiguous("shard", int(group.after_forward), ranks.ranks_per_node)
            shard = part.shard_elements * part.ranks // ranks.ranks
        group.gathered_bytes = round_up(shard * ranks.ranks * held.compute)
        casts = held.compute != held.parameter and not group.kept_bytes
        cast = round_up(shard * held.compute) if casts else 0
        self.recorder.emit(
            "all-gather",
            group.name,
            stream="all-gather",
            changes=(
                Change("temporaries", CAST, cast),
                Change("all_gather_buffers", GATHERED, group.gathered_bytes),
                Change("temporaries", CAST, -cast),
            ),
            collective=Collective(
                name="all_gather",
                group=ranks,
                input_bytes=shard * held.compute,
                output_bytes=shard * ranks.ranks * held.compute,
            ),
            traffic_bytes=shard * (held.parameter + held.compute),
            waits=(COPY_OUT,),
        )

    def copy_out(self, group: FsdpGroup, *, backward: bool) -> None:
        """Copy the flat buffer out to the parameters.

        In backward the buffer goes at once; in forward it is parked, and the one parked before
        it goes.
        """
        size = group.parameters.unsharded_bytes(self.plan.dtypes.compute)
        changes = [Change("unsharded_parameters", group.name, size)]
        if self.plan.groups.shard.ranks == 1:
            changes = self._cast_alone(group)
        if group.kept_bytes:
            changes.append(Change("unsharded_parameters", group.name, -group.kept_bytes))
            group.kept_bytes = 0
        gone = group.gathered_bytes if backward else self.parked
        changes.append(Change("all_gather_buffers", GATHERED, -gone))
        self.recorder.emit(
            "copy-out",
            group.name,
            changes=tuple(changes),
            traffic_bytes=2 * size,
            waits=("all-gather",),
            mark=COPY_OUT,
        )
        self.parked = 0 if backward else group.gathered_bytes
        group.in_flight = False
        group.unsharded = True

    def _cast_alone(self, group: FsdpGroup) -> list[Change]:
        """Copy each parameter out of a cast of its own: one rank has no flat buffer."""
        held, changes = self.plan.dtypes, []
        for p in group.parameters.parameters:
            size = round_up(p.elements * held.compute)
            cast = size if held.compute != held.parameter else 0
            changes += [
                Change("temporaries", CAST, cast),
                Change("unsharded_parameters", group.name, size),
                Change("temporaries", CAST, -cast),
            ]
        return changes

    def release_parked(self) -> None:
        """Drop the last all-gather output when the root's forward returns."""
        gone = Change("all_gather_buffers", GATHERED, -self.parked)
        self.recorder.emit("release", "root", changes=(gone,))
        self.parked = 0

    def reshard_after_forward(self, group: FsdpGroup) -> None:
        """Free a group's parameters after its forward, or keep a shard over fewer ranks."""
        if group.after_forward is False:
            return
        if group.after_forward is not True and group.unsharded:
            changes = list(self._reshard_to_fewer(group, int(group.after_forward)))
        else:
            changes = self.reshard(group)
        self.recorder.emit("reshard", group.name, changes=tuple(changes))

    def _reshard_to_fewer(self, group: FsdpGroup, fewer: int) -> Iterator[Change]:
        """Clone a part of each parameter before the whole of it goes, one after the other."""
        itemsize = self.plan.dtypes.compute
        for p in group.parameters.parameters:
            alone = replace(group.parameters, parameters=(p,))
            part, whole = alone.unsharded_bytes(itemsize, fewer), alone.unsharded_bytes(itemsize)
            yield Change("unsharded_parameters", group.name, part)
            yield Change("unsharded_parameters", group.name, -whole)
        group.kept_bytes = group.parameters.unsharded_bytes(itemsize, fewer)
        group.unsharded = False

    def reshard(self, group: FsdpGroup) -> list[Change]:
        """Free a group's unsharded parameters."""
        if not group.unsharded:
            return []
        group.unsharded = False
        size = group.parameters.unsharded_bytes(self.plan.dtypes.compute)
        return [Change("unsharded_parameters", group.name, -size)]


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
        return [
            Change("unsharded_gradients", p.name, round_up(p.elements * itemsize))
            for p in group.parameters.parameters
        ]

    def accumulate(self, group: FsdpGroup) -> list[Change]:
        """Add the new gradients to the unsharded ones of earlier micro-steps (no_sync).

        They are kept in the reduce dtype; where that is the compute dtype, autograd adds them up.
        """
        held = self.plan.dtypes
        fresh = self.gradients(group, held.compute)
        if group.accumulates:
            return _freed(fresh)
        group.accumulates = True
        if held.reduce == held.compute:
            return []
        kept = self.gradients(group, held.reduce)
        return [c for new, old in zip(kept, _freed(fresh), strict=True) for c in (new, old)]

    def run(self, group: FsdpGroup, *, last: bool) -> None:
        """Copy the gradients into one buffer, reduce-scatter it, all-reduce across copies, cast.

        Every gradient goes with the copy-in but the last one, which a loop variable of
        `foreach_reduce` holds until that returns, where there are several ranks.
        """
        held, part = self.plan.dtypes, group.parameters
        ranks = self.plan.groups.shard
        loops = ranks.ranks > 1
        grads = _freed(self.gradients(group, held.reduce if group.accumulates else held.compute))
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
            size = group.parameters.shard_elements * self.plan.dtypes.reduce
            gone = (Change("gradients", owner, -group.partial_bytes),)
            group.partial_bytes = 0
            self.recorder.emit(
                "all-reduce",
                name,
                stream="all-reduce",
                changes=gone,
                collective=Collective(
                    name="all_reduce", group=replicate, input_bytes=size, output_bytes=size
                ),
                waits=("reduce-scatter",),
            )
        self._assign(group, out)

    def _assign(self, group: FsdpGroup, out: Size) -> None:
        """Cast to the parameters' dtype and add to the sharded gradient of earlier micro-steps.

        HSDP keeps every group's all-reduce buffer until the end of backward.
        """
        held, owner = self.plan.dtypes, self._output_owner(group)
        changes: list[Change] = []
        if held.reduce != held.gradient:
            gradient = group.parameters.flat_shard_bytes(held.gradient)
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
        return [
            Change("gradients", g.name, g.parameters.flat_shard_bytes(itemsize) * g.times)
            for g in groups
        ]

    def zero_grad(self, groups: list[FsdpGroup]) -> None:
        """Drop the sharded gradients."""
        self.recorder.emit("zero_grad", "optimizer", changes=tuple(_freed(self.held(groups))))

    def _output_owner(self, group: FsdpGroup) -> str:
        """Name a reduce-scatter output: the sharded gradient itself where no cast or sum follows."""
        held = self.plan.dtypes
        is_gradient = held.reduce == held.gradient and not group.has_gradient
        return group.name if is_gradient else REDUCED


def _freed(changes: list[Change]) -> list[Change]:
    return [Change(c.category, c.owner, -c.bytes) for c in changes]
