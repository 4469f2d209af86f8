"""Seconds of one collective, by a latency-bandwidth model of rings."""

from zeroplan.comm.fabric import Fabric, ring_bandwidth
from zeroplan.hardware.profile import Link
from zeroplan.schedule.events import Collective
from zeroplan.units import Size, minimum

__all__ = ["collective_seconds", "inter_node_wire_bytes"]


def collective_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of one collective from its start to its end. [s]

    The lesser of two protocols, each base + steps in the node x a + steps between nodes x b +
    W / (B e): with the bulk protocol e = 1, with the low-latency one a, b and the base are small
    and e is too. An all-reduce takes twice the steps. n ranks on N nodes take n - N steps in a
    node and N - 1 between nodes. Fitted to published nccl-tests sweeps; the form is NCCL's own
    (src/graph/tuning.cc, 2.30).
    """
    group = collective.group
    bandwidth = ring_bandwidth(group, wires)
    passes = 2 if collective.name == "all_reduce" else 1
    inside, between = passes * (group.ranks - group.nodes), passes * (group.nodes - 1)
    sent = collective.wire_bytes
    outer = wires.inter if group.nodes > 1 else wires.intra
    bulk = (
        outer.base_seconds.value
        + inside * wires.intra.latency_seconds.value
        + between * outer.latency_seconds.value
        + sent / bandwidth
    )
    fast = (
        outer.small_message_base_seconds.value
        + inside * wires.intra.small_message_latency_seconds.value
        + between * outer.small_message_latency_seconds.value
        + sent / (bandwidth * _efficiency(outer))
    )
    return minimum(bulk, fast)


def _efficiency(link: Link) -> float:
    return link.small_message_efficiency.value


def inter_node_wire_bytes(collective: Collective) -> Size:
    """Bytes that leave one node, divided by its members. [B]

    A ring crosses to the next node once, at the last member of each node: of what every rank
    sends, one rank's share in `ranks_per_node` goes out. An all-to-all sends to every rank of the
    other nodes.
    """
    group = collective.group
    if collective.name == "all_to_all":
        return collective.message_bytes * (group.ranks - group.ranks_per_node) / group.ranks
    crosses = (group.nodes > 1) * 1
    return crosses * collective.wire_bytes / group.ranks_per_node
