"""A frozen copy of the model in the compute dtype, run forward before the model itself.

Preference optimisation compares the model with what it was (DPO, PPO). The copy's forward keeps
nothing for a backward. Under FSDP2 it is sharded like the model, and its root, which no backward
reshards, stays gathered; elsewhere it is whole on every rank.
"""

from zeroplan.records import replace
from zeroplan.schedule.events import Recorder, segment
from zeroplan.schedule.fsdp2_gather import Gather
from zeroplan.schedule.fsdp2_groups import FsdpGroup, fsdp_groups
from zeroplan.schedule.plan import REFERENCE, Plan
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Change, freed
from zeroplan.workload.liveness import forward
from zeroplan.workload.model import Unit, Workload

__all__ = ["ShardedReference", "reference_forward", "reference_model"]


def reference_model(plan: Plan) -> list[Change]:
    """List what a whole copy holds throughout, its own rotary tables included."""
    if plan.reference is None:
        return []
    sizes = ((p.elements * plan.dtypes.compute, times) for p, times in plan.parameters)
    held = sum(round_up(size) * times for size, times in sizes)
    return [Change("parameters", REFERENCE, held), *_buffers(plan)]


def reference_forward(recorder: Recorder, plan: Plan) -> None:
    """Run a whole copy forward."""
    if plan.reference is not None:
        units = plan.reference.units
        for index in plan.walk_forward(recorder):
            _unit_forward(recorder, plan.owner(index), units[index])


def _unit_forward(recorder: Recorder, owner: str, unit: Unit) -> None:
    """Run a unit forward and let its input go; what leaves the head's goes too."""
    recorder.compute("reference forward", owner, segment(forward(unit, "full")))
    last = unit.output if unit.kind == "head" else None
    gone = [tensor for tensor in (unit.input, last) if tensor is not None]
    left = tuple(freed(tensor.storage, kept=True) for tensor in gone)
    recorder.emit("reference forward", owner, changes=left)


def _buffers(plan: Plan) -> list[Change]:
    return [Change("other", REFERENCE, round_up(size)) for size in plan.workload.buffers_bytes]


class ShardedReference:
    """The copy under FSDP2, with its own groups."""

    def __init__(self, recorder: Recorder, plan: Plan, model: Workload) -> None:
        self.units = model.units
        stored = replace(plan.dtypes, parameter=plan.dtypes.compute, frozen=0)
        self.plan = replace(plan, dtypes=stored)
        self.recorder = recorder
        self.gather = Gather(self.plan, recorder)
        self.groups = fsdp_groups(self.plan)
        self.by_unit = {index: group for group in self.groups for index in group.units}
        for group in self.groups:
            group.unsharded = self._stays(group)

    def _stays(self, group: FsdpGroup) -> bool:
        """Whether nothing reshards a group once it has been gathered."""
        return group.after_forward is False

    def resident(self) -> list[Change]:
        """List what it holds throughout."""
        held = self.plan.dtypes
        shards: Size = sum(g.parameters.shards_bytes(held.stored) * g.times for g in self.groups)
        stays = [group for group in self.groups if self._stays(group)]
        whole = sum(g.parameters.unsharded_bytes(held.used) * g.times for g in stays)
        return [
            Change("parameters", REFERENCE, shards),
            Change("unsharded_parameters", REFERENCE, whole),
            *_buffers(self.plan),
        ]

    def forward(self) -> None:
        """Gather, run and reshard unit after unit."""
        for index in self.plan.walk_forward(self.recorder):
            group = self.by_unit[index]
            if not group.unsharded:
                self.gather.start(group)
                self.gather.copy_out(group, backward=False)
            _unit_forward(self.recorder, self.plan.owner(index), self.units[index])
            if index == group.units[-1]:
                self.gather.reshard_after_forward(group)
        self.gather.release_parked()
