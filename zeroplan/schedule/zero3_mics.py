"""MiCS: shards inside groups and copies across them, parameters gathered straight into place.

Source: deepspeed/runtime/zero/mics.py and mics_utils.py (0.19.6, the last version that has it).
"""

from zeroplan.records import dataclass
from zeroplan.schedule.events import collective
from zeroplan.schedule.zero3_parameters import Parameters
from zeroplan.sharding.groups import Group
from zeroplan.units import round_up
from zeroplan.workload.changes import Change

__all__ = ["PlacedParameters"]


@dataclass(slots=True)
class PlacedParameters(Parameters):
    """The parameters of the model under MiCS: each is gathered into a buffer of its own."""

    def whole_bytes(self, place: int, *, alone: bool) -> int:  # noqa: ARG002
        """Return the bytes of a parameter, which is a part of its padded buffer."""
        return Parameters.whole_bytes(self, place, alone=True)

    def fetch(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:  # noqa: ARG002
        """Gather parameters in one coalesced call, or in two: between nodes, then inside them."""
        groups, whole = self.plan.groups, self.gathered_bytes(places)
        size = sum(self.whole_bytes(place, alone=True) for place in places)
        come = Change("unsharded_parameters", "parameters", size)
        if groups.inter.ranks == 1:
            self._call(owner, groups.shard, whole, (come,))
            return
        across = whole // groups.intra.ranks
        self._call(owner, groups.inter, across, (come,))
        copies = (round_up(self.gathered_bytes((p,)) // groups.intra.ranks) for p in places)
        copy = Change("all_gather_buffers", "part of the nodes", int(max(copies)))
        self._call(owner, groups.intra, whole, (copy, -copy))

    def _call(self, owner: str, group: Group, size: int, changes: tuple[Change, ...]) -> None:
        self.recorder.emit(
            "all-gather",
            owner,
            stream="all-gather",
            changes=changes,
            collective=collective("all_gather", group, size // group.ranks, size),
            waits=self.gather_waits,
        )

    def copy_out(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:
        """Do nothing: the parameters are where they are used."""

    def drop(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:
        """Do nothing: there is no flat buffer."""
