"""Process groups: how many ranks, on how many nodes, how many of them in each node."""

from typing import Literal

from zeroplan.records import dataclass
from zeroplan.units import Size, ceil_div

__all__ = ["Group", "GroupName", "Groups", "contiguous", "groups"]

GroupName = Literal["shard", "secondary", "replicate", "world", "intra", "inter"]


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
    intra: Group
    """The ranks of a node; 1 where nothing is done in two levels."""
    inter: Group
    """The ranks with the same place in their nodes; 1 where nothing is done in two levels."""

    @property
    def communicators(self) -> int:
        """NCCL communicators of a rank: one per group with more than one rank. [count]"""
        formed = (self.shard, self.secondary, self.replicate, self.intra, self.inter)
        return sum(bool(group.ranks > 1) for group in formed)


def groups(
    *,
    gpus: int,
    gpus_per_node: int,
    shard_size: int,
    secondary_size: int = 1,
    two_levels: bool = False,
) -> Groups:
    """Lay the groups out: shard groups of neighbouring ranks, replicate groups across them.

    A replicate group's members are `shard_size` apart, so one node holds
    gpus_per_node / shard_size of them, and never less than one. Groups of two levels, in the node
    and between nodes, are formed where they are asked for and a shard group has several nodes.
    """
    shard = contiguous("shard", shard_size, gpus_per_node)
    nodes = int(shard.nodes) if two_levels else 1
    local = int(shard.ranks_per_node) if nodes > 1 else 1
    copies = gpus // shard_size
    per_node = min(copies, max(1, gpus_per_node // shard_size))
    return Groups(
        shard=shard,
        secondary=contiguous("secondary", secondary_size, gpus_per_node),
        replicate=Group(
            name="replicate",
            ranks=copies,
            nodes=ceil_div(copies, per_node),
            ranks_per_node=per_node,
        ),
        world=contiguous("world", gpus, gpus_per_node),
        intra=contiguous("intra", local, gpus_per_node),
        inter=Group(name="inter", ranks=nodes, nodes=nodes, ranks_per_node=1),
    )


def contiguous(name: GroupName, ranks: int, gpus_per_node: int) -> Group:
    """Lay out a group of neighbouring ranks."""
    per_node = min(ranks, gpus_per_node)
    return Group(name=name, ranks=ranks, nodes=ceil_div(ranks, per_node), ranks_per_node=per_node)
