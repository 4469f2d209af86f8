"""FSDP2 brings parameters in: all-gather, copy-out, reshard.

Source: `foreach_all_gather` and `foreach_all_gather_copy_out` in
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `FSDPParamGroup` beside it, torch 2.13.
"""

from collections.abc import Iterator

from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective, Recorder
from zeroplan.schedule.fsdp2_groups import FsdpGroup
from zeroplan.schedule.offload import copied
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.groups import contiguous
from zeroplan.sharding.layout import dim0_shard_elements
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Change
from zeroplan.workload.tape import Parameter

__all__ = ["Gather"]

COPY_OUT = "copy-out"
"""Mark of the last copy-out: an all-gather waits for it, so at most one runs ahead."""

CAST = "cast of the shard"
GATHERED = "all-gather output"


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
        sent = part.sent_bytes(held.used)
        if group.kept_bytes:
            ranks = contiguous("shard", int(group.after_forward), ranks.ranks_per_node)
            sent = sent * part.ranks // ranks.ranks
        group.gathered_bytes = round_up(sent * ranks.ranks)
        wide = [p for p in part.parameters if held.used(p) != held.stored(p) or p.float8]
        kept = bool(group.kept_bytes) and not part.float8
        casts = replace(part, parameters=() if kept else tuple(wide))
        cast = round_up(sent) if part.float8 else round_up(casts.sent_bytes(held.used))
        waits: tuple[str, ...] = (COPY_OUT,)
        inputs = [Change("temporaries", CAST, cast)]
        if self.plan.offload and not group.kept_bytes:
            inputs, waits = self._from_host(group), ("host to device", COPY_OUT)
        self.recorder.emit(
            "all-gather",
            group.name,
            stream="all-gather",
            changes=(
                *inputs,
                Change("all_gather_buffers", GATHERED, group.gathered_bytes),
                Change("temporaries", CAST, -sum(each.bytes for each in inputs)),
            ),
            collective=Collective(
                name="all_gather",
                group=ranks,
                input_bytes=sent,
                output_bytes=sent * ranks.ranks,
            ),
            traffic_bytes=part.stored_bytes(held.stored) + sent,
            waits=waits,
        )

    def _from_host(self, group: FsdpGroup) -> list[Change]:
        """Copy a group's shards to the GPU, return what that leaves there for the all-gather.

        Each parameter comes in the dtype in which it is stored and is then cast by itself
        (`FSDPParam.all_gather_inputs`).
        """
        part, held = group.parameters, self.plan.dtypes
        self.recorder.emit(
            "copy from host",
            group.name,
            stream="host to device",
            transfer=copied(self.plan.offload, part.stored_bytes(held.stored)),
            waits=(COPY_OUT,),
        )
        return [
            change
            for p in part.parameters
            for change in self._input(p, dim0_shard_elements(p, part.ranks))
        ]

    def _input(self, parameter: Parameter, elements: Size) -> list[Change]:
        """List what an all-gather's input from the host takes, its sum is what stays."""
        held = self.plan.dtypes
        stored, used = held.stored(parameter), held.used(parameter)
        wide = Change("temporaries", CAST, round_up(elements * stored))
        cast = Change("temporaries", CAST, round_up(elements * used))
        return [wide, cast, -wide] if used != stored else [wide]

    def copy_out(self, group: FsdpGroup, *, backward: bool) -> None:
        """Copy the flat buffer out to the parameters.

        In backward the buffer goes at once; in forward it is parked, and the one parked before
        it goes.
        """
        size = group.parameters.unsharded_bytes(self.plan.dtypes.used)
        changes, transfer = [Change("unsharded_parameters", group.name, size)], None
        if self.plan.groups.shard.ranks == 1:
            changes = self._cast_alone(group)
            stored = group.parameters.shard_elements * self.plan.dtypes.parameter
            transfer = copied(self.plan.offload, stored) if self.plan.offload else None
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
            transfer=transfer,
            waits=("all-gather",),
            mark=COPY_OUT,
        )
        self.parked = 0 if backward else group.gathered_bytes
        group.in_flight = False
        group.unsharded = True

    def _cast_alone(self, group: FsdpGroup) -> list[Change]:
        """Copy each parameter out of a cast of its own: one rank has no flat buffer.

        A loop variable holds a cast until the next one is made.
        """
        held = self.plan.dtypes
        changes: list[Change] = []
        before: Size = 0
        for p in group.parameters.parameters:
            size = round_up(p.elements * group.parameters.itemsize_in_use(p, held.used(p)))
            casts = held.used(p) != held.stored(p)
            inputs = [Change("temporaries", CAST, size if casts else 0)]
            if self.plan.offload:
                inputs = self._input(p, p.elements)
            changes += [
                *inputs,
                Change("temporaries", CAST, -before),
                Change("unsharded_parameters", group.name, size),
            ]
            before = sum(each.bytes for each in inputs)
        return [*changes, Change("temporaries", CAST, -before)]

    def drop_unused(self, group: FsdpGroup) -> list[Change]:
        """Drop what was gathered ahead for a group to which no gradient came."""
        if not group.in_flight or self.plan.groups.shard.ranks == 1:
            return []
        group.in_flight = False
        return [Change("all_gather_buffers", GATHERED, -group.gathered_bytes)]

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
        itemsize = self.plan.dtypes.used
        for p in group.parameters.parameters:
            alone = replace(group.parameters, parameters=(p,))
            part, whole = alone.unsharded_bytes(itemsize, fewer), alone.unsharded_bytes(itemsize)
            yield Change("unsharded_parameters", group.name, part)
            if group.stale_bytes:
                yield Change("unsharded_parameters", group.name, -part)
            yield Change("unsharded_parameters", group.name, -whole)
        group.kept_bytes = group.parameters.unsharded_bytes(itemsize, fewer)
        group.stale_bytes = 0
        group.unsharded = False

    def reshard(self, group: FsdpGroup) -> list[Change]:
        """Free a group's unsharded parameters; a shard kept for a backward gather lives on."""
        if not group.unsharded:
            group.stale_bytes += group.kept_bytes
            group.kept_bytes = 0
            return []
        group.unsharded = False
        size = group.parameters.unsharded_bytes(self.plan.dtypes.used)
        return [Change("unsharded_parameters", group.name, -size)]
