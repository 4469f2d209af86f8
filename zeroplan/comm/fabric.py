"""The links of a cluster, as one group of ranks sees them."""

from zeroplan.hardware import Quantity
from zeroplan.hardware.profile import Gpu, Link, Node, nics_of_node, ring_efficiency
from zeroplan.records import dataclass
from zeroplan.sharding.groups import Group
from zeroplan.spec.words import Backend
from zeroplan.units import Size, minimum

__all__ = [
    "Fabric",
    "fabric",
    "gpu_bandwidth",
    "narrowest_rate",
    "network_bandwidth",
    "ring_bandwidth",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What joins the GPUs of a node, and the nodes."""

    intra: Link
    inter: Link
    gpus_per_node: int
    node_bytes_per_second: float
    """Line rate of all NICs of a node together, in one direction. [B/s]"""
    nics: float
    """NICs of a node; the ports of its GPUs where one domain joins the nodes. [count]"""
    copy_bytes_per_second: float
    """Rate at which a collective copies a rank's own shard. [B/s]"""
    oversubscription: float = 1.0
    """What the nodes' NICs carry together over what the switches above them do. [1]"""
    backend: Backend = "nccl"
    """The library that runs the collectives."""

    @property
    def overlaps(self) -> bool:
        """Whether collectives run beside kernels: gloo's calls are waited for."""
        return self.backend == "nccl"


def fabric(
    *,
    intra: Link,
    inter: Link,
    gpus_per_node: int,
    node: Node | None,
    gpu: Gpu,
    oversubscription: float = 1.0,
    backend: Backend = "nccl",
) -> Fabric:
    """Join links to a fabric; NICs are the node type's, else the link's usual number.

    A link of scope "node" between nodes (one NVLink domain) gives every GPU its own port.
    """
    line = inter.bandwidth_bytes_per_second.value
    nics: float = gpus_per_node
    if inter.scope != "node":
        nics = nics_of_node(inter, gpus_per_node)
        if node is not None and node.nics is not None and node.node_link.value == inter.id:
            rate, nics = node.nic_bytes_per_second, node.nics.value
            line = line if rate is None else rate.value
    return Fabric(
        intra=intra,
        inter=inter,
        gpus_per_node=gpus_per_node,
        node_bytes_per_second=nics * line,
        nics=nics,
        copy_bytes_per_second=gpu.collective_copy_bytes_per_second.value,
        oversubscription=oversubscription,
        backend=backend,
    )


def gpu_bandwidth(group: Group, wires: Fabric) -> Size:
    """Bus bandwidth of a ring through the GPUs of a node. [B/s]"""
    share = ring_efficiency(wires.intra, group.ranks_per_node).value
    return wires.intra.bandwidth_bytes_per_second.value * share


def network_bandwidth(group: Group, wires: Fabric) -> Size:
    """Bandwidth to other nodes of all members in one node together. [B/s]

    They share the node's NICs evenly: a ring of the whole world has all of them, a replicate group
    with one member per node one share.
    """
    share = group.ranks_per_node / wires.gpus_per_node
    line = wires.node_bytes_per_second / wires.oversubscription
    carried = line * wires.inter.bandwidth_efficiency.value
    host = wires.inter.host_bytes_per_second
    return share * (carried if host is None else min(carried, host.value))


def narrowest_rate(wires: Fabric) -> Quantity:
    """Return what bounds the traffic of a node: a share of its NICs, or what its host carries."""
    share, host = wires.inter.bandwidth_efficiency, wires.inter.host_bytes_per_second
    if host is None or wires.node_bytes_per_second * share.value < host.value:
        return share
    return host


def ring_bandwidth(group: Group, wires: Fabric) -> Size:
    """Bus bandwidth of a ring through a group: the narrowest part of it. [B/s]"""
    if group.nodes == 1:
        return gpu_bandwidth(group, wires)
    through = network_bandwidth(group, wires)
    alone = group.ranks_per_node == 1
    return through if alone else minimum(gpu_bandwidth(group, wires), through)
