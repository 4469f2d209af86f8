"""Which links cannot be bought at the size that is asked for."""

from typing import Final

from zeroplan.comm.fabric import Fabric
from zeroplan.hardware import Catalogue, Gpu, Link
from zeroplan.spec.run import ClusterChoice

__all__ = ["HYPOTHETICAL", "hypothetical_notes"]

HYPOTHETICAL: Final = "Hypothetical: "
"""How a note begins that names such a link."""

SWITCHED: Final = ("nvlink", "xgmi")
"""Kinds of link inside a node that are as wide as the boards and switches they are built into."""


def hypothetical_notes(
    cluster: ClusterChoice, gpu: Gpu, wires: Fabric, catalogue: Catalogue
) -> tuple[str, ...]:
    """Say where GPUs are joined that no machine joins so many of.

    A link of scope "node" between nodes makes one domain of all GPUs. How large a domain can be is
    read from the profile of the GPU, and from the node types that have the link inside.
    """
    node = min(cluster.gpus, wires.gpus_per_node)
    joins = wires.intra if cluster.gpus == node else wires.inter
    if joins.scope == "node" and joins.kind != "ethernet" and cluster.gpus > node:
        size = cluster.gpus
    elif wires.intra.kind in SWITCHED:
        joins, size = wires.intra, node
    else:
        return ()
    own = gpu.domain_gpus or gpu.gpus_per_node
    if size <= own.value:
        return ()
    known = int(max(own.value, _largest_node(joins, catalogue)))
    if size <= known:
        return ()
    what = f"one domain of {size:,} {gpu.id} on {joins.id}"
    return (f"{HYPOTHETICAL}{what}; no machine that zeroplan knows joins more than {known}.",)


def _largest_node(link: Link, catalogue: Catalogue) -> float:
    """Return how many GPUs the largest node type with this link inside has. [count]"""
    nodes = (catalogue.node(name) for name in catalogue.node_ids())
    return max((node.gpus.value for node in nodes if node.intra_link.value == link.id), default=0)
