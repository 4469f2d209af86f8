"""Rings, trees, reductions in a switch and exchanges in pairs: the seconds of each.

Each comes in two protocols, as in NCCL (src/graph/tuning.cc, 2.30): one for bulk (Simple) and one
whose steps are short and whose bandwidth is low (LL, LL128). The lesser time counts.
"""

from typing import Final

from zeroplan.comm.fabric import Fabric, gpu_bandwidth, network_bandwidth, ring_bandwidth
from zeroplan.hardware import Link, Quantity
from zeroplan.records import dataclass
from zeroplan.schedule.events import Collective
from zeroplan.units import Size, doublings, maximum, minimum

__all__ = ["pairwise_seconds", "ring_seconds", "switch_seconds", "tree_seconds"]

PAIR: Final = 2
"""Nodes of which neither has two children in a tree: each sends the whole once, not twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Protocol:
    """The constants of one protocol. [s], [1]"""

    base: float
    inside: float
    """Step from GPU to GPU in a node."""
    between: float
    """Step from node to node."""
    efficiency: float
    """Share of the bandwidth that bulk has."""


def ring_seconds(collective: Collective, wires: Fabric, own_bytes: Size) -> Size:
    """Time of a ring. [s]

    base + max(W / network, (n - N) a + (N - 1) b + W / GPUs + own / copy): n ranks on N nodes take
    n - N steps in a node and N - 1 between nodes, an all-reduce twice as many. A GPU takes one step
    after the other. NICs send one step's data while the next is on its way, so that where they are
    the narrowest part the steps cost nothing: fitted to 8 and 32 GPUs on Slingshot, this holds for
    2160.
    """
    group, sent = collective.group, collective.wire_bytes
    passes = 2 if collective.name == "all_reduce" else 1
    bulk, fast = _protocols(wires, several=group.nodes > 1)
    own = own_bytes / wires.copy_bytes_per_second
    inside, between = passes * (group.ranks - group.nodes), passes * (group.nodes - 1)

    def steps(protocol: _Protocol) -> Size:
        return inside * protocol.inside + between * protocol.between

    through_gpus = 0.0 if group.ranks_per_node == 1 else sent / gpu_bandwidth(group, wires) + own
    long = steps(bulk) + through_gpus
    if group.nodes > 1:
        long = maximum(sent / network_bandwidth(group, wires), long)
    short = steps(fast) + sent / (ring_bandwidth(group, wires) * fast.efficiency) + own
    return minimum(bulk.base + long, fast.base + short)


def tree_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of an all-reduce up and down a tree of nodes, with a chain of GPUs in each. [s]

    base + 2 (p - 1) a + log2(N) b + max(k S / network, 2 S / GPUs) / efficiency: a node passes the
    whole on and back, k = 2, but between two nodes only once in each direction, k = 1.
    """
    group = collective.group
    chain, height = 2 * (group.ranks_per_node - 1), doublings(group.nodes)
    links = _through_nodes(collective, wires)
    if group.ranks_per_node > 1:
        links = maximum(links, 2 * collective.message_bytes / gpu_bandwidth(group, wires))
    times = [
        each.base
        + chain * each.inside
        + height * each.between
        + links / (_known(wires.inter.tree_efficiency) * each.efficiency)
        for each in _protocols(wires, several=True)
    ]
    return minimum(times[0], times[1])


def switch_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of an all-reduce inside NVLink switches, and up and down a tree between nodes. [s]

    p c + S (1 + 1/p) / switch in one node: every GPU sends the whole up to be summed, and its own
    part of the sums once more (NVLink SHARP). Between nodes the slower of this and the tree counts.
    """
    group, intra = collective.group, wires.intra
    rate, step = _known(intra.switch_efficiency), _known(intra.switch_latency_seconds)
    members = group.ranks_per_node
    up = collective.message_bytes * (1 + 1 / members)
    switch = up / (intra.bandwidth_bytes_per_second.value * rate)
    if group.nodes == 1:
        return members * step + switch
    bulk, _ = _protocols(wires, several=True)
    steps = members * step + doublings(group.nodes) * bulk.between
    links = maximum(switch, _through_nodes(collective, wires))
    return bulk.base + steps + links


def pairwise_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of an all-to-all, in which every rank sends every other one its part. [s]

    As many steps as a ring; of n parts p stay in the node, and the rest share its NICs.
    """
    group, whole = collective.group, collective.message_bytes
    links = collective.wire_bytes / gpu_bandwidth(group, wires)
    if group.nodes > 1:
        leaving = whole * (group.ranks - group.ranks_per_node) / group.ranks
        out = group.ranks_per_node * leaving / network_bandwidth(group, wires)
        links = out if group.ranks_per_node == 1 else maximum(links, out)
    times = [
        each.base
        + (group.ranks - group.nodes) * each.inside
        + (group.nodes - 1) * each.between
        + links / each.efficiency
        for each in _protocols(wires, several=group.nodes > 1)
    ]
    return minimum(times[0], times[1])


def _through_nodes(collective: Collective, wires: Fabric) -> Size:
    """Time in which a node's NICs pass a tree's bytes. [s]"""
    group = collective.group
    times = 2 - 1 * (group.nodes == PAIR)
    return times * collective.message_bytes / network_bandwidth(group, wires)


def _known(quantity: Quantity | None) -> float:
    """Return a number that a link without it is not asked for."""
    if quantity is None:
        raise AssertionError
    return quantity.value


def _protocols(wires: Fabric, *, several: bool) -> tuple[_Protocol, _Protocol]:
    """Return bulk and low latency for a group on one node or on several."""
    intra = wires.intra
    outer: Link = wires.inter if several else intra
    return (
        _Protocol(
            base=outer.base_seconds.value,
            inside=intra.latency_seconds.value,
            between=outer.latency_seconds.value,
            efficiency=1.0,
        ),
        _Protocol(
            base=outer.small_message_base_seconds.value,
            inside=intra.small_message_latency_seconds.value,
            between=outer.small_message_latency_seconds.value,
            efficiency=outer.small_message_efficiency.value,
        ),
    )
