"""Rings, trees, reductions in a switch and exchanges in pairs: the seconds of each.

Each comes in protocols (`comm/protocols.py`). A ring runs in the one that NCCL chooses; where that
leaves a choice, and in the other algorithms, the lesser time counts.
"""

from typing import Final

from zeroplan.comm.fabric import Fabric, gpu_bandwidth, network_bandwidth, ring_bandwidth
from zeroplan.comm.protocols import Steps, bulk, known, low_latency_chosen, low_latency_seconds
from zeroplan.schedule.events import Collective
from zeroplan.units import Size, doublings, maximum, minimum

__all__ = ["pairwise_seconds", "ring_seconds", "switch_seconds", "tree_seconds"]

PAIR: Final = 2
"""Nodes of which neither has two children in a tree: each sends the whole once, not twice."""


def ring_seconds(collective: Collective, wires: Fabric, own_bytes: Size) -> Size:
    """Time of a ring. [s]

    base + max(W / network, (n - N) a + (N - 1) b + W / GPUs + own / copy): n ranks on N nodes take
    n - N steps in a node and N - 1 between nodes, an all-reduce twice as many. A GPU takes one step
    after the other. NICs send one step's data while the next is on its way, so that where they are
    the narrowest part the steps cost nothing: fitted to 8 and 32 GPUs on Slingshot, this holds for
    2160. LL and LL128 do not overlap so: base + steps + W / the narrowest of both + own / copy.
    """
    group, sent = collective.group, collective.wire_bytes
    several, reduces = group.nodes > 1, collective.name == "all_reduce"
    passes = 2 if reduces else 1
    simple = bulk(wires, several=several)
    own = own_bytes / wires.copy_bytes_per_second
    steps = Steps(
        inside=passes * (group.ranks - group.nodes),
        between=passes * (group.nodes - 1),
        links=sent / ring_bandwidth(group, wires),
    )
    through_gpus = 0.0 if group.ranks_per_node == 1 else sent / gpu_bandwidth(group, wires) + own
    long = simple.waits(steps) + through_gpus
    if several:
        long = maximum(sent / network_bandwidth(group, wires), long)
    long = simple.base + long
    short = minimum(long, low_latency_seconds(wires, steps, several=several) + own)
    stays = low_latency_chosen(wires, steps, several=several, reduces=reduces)
    return stays * short + (1 - stays) * long


def tree_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of an all-reduce up and down a tree of nodes, with a chain of GPUs in each. [s]

    base + 2 (p - 1) a + log2(N) b + max(k S / network, 2 S / GPUs) / efficiency: a node passes the
    whole on and back, k = 2, but between two nodes only once in each direction, k = 1.
    """
    group = collective.group
    links = _through_nodes(collective, wires)
    if group.ranks_per_node > 1:
        links = maximum(links, 2 * collective.message_bytes / gpu_bandwidth(group, wires))
    steps = Steps(
        inside=2 * (group.ranks_per_node - 1),
        between=doublings(group.nodes),
        links=links / known(wires.inter.tree_efficiency),
    )
    short = low_latency_seconds(wires, steps, several=True)
    return minimum(bulk(wires, several=True).seconds(steps), short)


def switch_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of an all-reduce inside NVLink switches, and up and down a tree between nodes. [s]

    p c + S (1 + 1/p) / switch in one node: every GPU sends the whole up to be summed, and its own
    part of the sums once more (NVLink SHARP). Between nodes the slower of this and the tree counts.
    """
    group, intra = collective.group, wires.intra
    rate, step = known(intra.switch_efficiency), known(intra.switch_latency_seconds)
    members = group.ranks_per_node
    up = collective.message_bytes * (1 + 1 / members)
    switch = up / (intra.bandwidth_bytes_per_second.value * rate)
    if group.nodes == 1:
        return members * step + switch
    simple = bulk(wires, several=True)
    steps = members * step + doublings(group.nodes) * simple.between
    links = maximum(switch, _through_nodes(collective, wires))
    return simple.base + steps + links


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
    several = group.nodes > 1
    steps = Steps(inside=group.ranks - group.nodes, between=group.nodes - 1, links=links)
    short = low_latency_seconds(wires, steps, several=several)
    return minimum(bulk(wires, several=several).seconds(steps), short)


def _through_nodes(collective: Collective, wires: Fabric) -> Size:
    """Time in which a node's NICs pass a tree's bytes. [s]"""
    group = collective.group
    times = 2 - 1 * (group.nodes == PAIR)
    return times * collective.message_bytes / network_bandwidth(group, wires)
