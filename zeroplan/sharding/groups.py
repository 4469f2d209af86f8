"""Process groups: how many ranks, on how many nodes, how many of them in each node."""

from typing import Literal

from zeroplan.records import dataclass
from zeroplan.units import Size, ceil_div

__all__ = ["Group", "GroupName", "Groups", "contiguous", "groups"]

GroupName = Literal["shard", "secondary", "replicate", "world"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks that take part in a collective."""

    name: GroupName
    ranks: Size
    nodes: Size
    ranks_per_node: Size
    """Members in one node: they share its NICs. [count]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of one run: shard x replicate = world."""

    shard: Group
    secondary: Group
    """Ranks that share a second copy of the parameters for backward (hpZ); 1 where there is none."""
    replicate: Group
    world: Group

    @property
    def communicators(self) -> int:
        """NCCL communicators of a rank: one per mesh dimension with more than one rank. [count]"""
        formed = (self.shard, self.secondary, self.replicate)
        return sum(bool(group.ranks > 1) for group in formed)


def groups(
    *, gpus: int, gpus_per_node: int, shard_size: int, secondary_size: int = 1
) -> Groups:
    """Lay the groups out: shard groups of neighbouring ranks, replicate groups across them.

    A replicate group's members are `shard_size` apart, so one node holds
    gpus_per_node / shard_size of them, and never less than one.
    """
    copies = gpus // shard_size
    per_node = min(copies, max(1, gpus_per_node // shard_size))
    return Groups(
        shard=contiguous("shard", shard_size, gpus_per_node),
        secondary=contiguous("secondary", secondary_size, gpus_per_node),
        replicate=Group(
            name="replicate",
            ranks=copies,
            nodes=ceil_div(copies, per_node),
            ranks_per_node=per_node,
        ),
        world=contiguous("world", gpus, gpus_per_node),
    )


def contiguous(name: GroupName, ranks: int, gpus_per_node: int) -> Group:
    """Lay out a group of neighbouring ranks."""
    per_node = min(ranks, gpus_per_node)
    return Group(name=name, ranks=ranks, nodes=ceil_div(ranks, per_node), ranks_per_node=per_node)
