"""The links of a cluster, as one group of ranks sees them."""

from zeroplan.hardware.profile import Link, Node, nics_of_node, ring_efficiency
from zeroplan.records import dataclass
from zeroplan.sharding.groups import Group
from zeroplan.units import Size, minimum

__all__ = ["Fabric", "fabric", "ring_bandwidth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What joins the GPUs of a node, and the nodes."""

    intra: Link
    inter: Link
    gpus_per_node: int
    node_bytes_per_second: float
    """Line rate of all NICs of a node together, in one direction. [B/s]"""


def fabric(*, intra: Link, inter: Link, gpus_per_node: int, node: Node | None) -> Fabric:
    """Join links to a fabric; NICs are the node type's, else the link's usual number.

    A link of scope "node" between nodes (one NVLink domain) gives every GPU its own port.
    """
    line = inter.bandwidth_bytes_per_second.value
    if inter.scope == "node":
        total = line * gpus_per_node
    elif node is not None and node.nics is not None and node.node_link.value == inter.id:
        rate = node.nic_bytes_per_second
        total = node.nics.value * (line if rate is None else rate.value)
    else:
        total = line * nics_of_node(inter, gpus_per_node)
    return Fabric(
        intra=intra, inter=inter, gpus_per_node=gpus_per_node, node_bytes_per_second=total
    )


def ring_bandwidth(group: Group, wires: Fabric) -> Size:
    """Bus bandwidth of a ring through a group. [B/s]

    Inside a node it is the intra link's. Across nodes it is the lesser of that and the node's
    NICs shared by the members per node: a ring of the whole world uses all of them, a replicate
    group with one member per node one share.
    """
    members = group.ranks_per_node
    inside = wires.intra.bandwidth_bytes_per_second.value * (
        ring_efficiency(wires.intra, members).value
    )
    if group.nodes == 1:
        return inside
    share = members / wires.gpus_per_node
    through = wires.node_bytes_per_second * share * wires.inter.bandwidth_efficiency.value
    return through if members == 1 else minimum(inside, through)
