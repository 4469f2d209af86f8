"""Seconds of one collective: the fastest way that its links offer."""

from collections.abc import Iterator
from typing import Final

from zeroplan.comm.algorithms import (
    pairwise_seconds,
    ring_seconds,
    switch_seconds,
    tree_seconds,
)
from zeroplan.comm.fabric import Fabric, narrowest_rate
from zeroplan.comm.gloo import gloo_rates, gloo_seconds
from zeroplan.hardware.profile import ring_efficiency
from zeroplan.records import replace
from zeroplan.schedule.events import Collective
from zeroplan.sharding.groups import Group
from zeroplan.units import MIB, Size, minimum

__all__ = [
    "bandwidth_uncertainty",
    "collective_seconds",
    "collective_uncertainty",
    "inter_node_wire_bytes",
]

LARGE: Final = 16 * MIB
"""Messages above this are judged by the uncertainty of the bandwidth. [B]"""


def collective_seconds(
    collective: Collective, wires: Fabric, *, in_place: bool | None = None
) -> Size:
    """Time of one collective from its start to its end. [s]

    All of them run as rings, an all-to-all in pairs. An all-reduce is also a tree between nodes, or
    a reduction in NVLink switches where they can do it. The constants are fitted to published
    nccl-tests sweeps; the forms are NCCL's own (src/graph/tuning.cc, 2.30). Gloo's are in `gloo`.

    Parameters
    ----------
    collective
        The call.
    wires
        The links.
    in_place
        Whether each rank's own part lies in the result from the start. By default it does in an
        all-gather and not in a reduce-scatter, as in FSDP2. An all-reduce copies it anyway.

    """
    if wires.backend == "gloo":
        return gloo_seconds(collective, wires)
    if wires.inter.scope == "node":
        collective, wires = _in_one_domain(collective, wires)
    if collective.name == "all_to_all":
        return pairwise_seconds(collective, wires)
    best = ring_seconds(collective, wires, _own_bytes(collective, in_place=in_place))
    if collective.name == "all_reduce":
        for other in _reductions(collective, wires):
            best = minimum(best, other)
    return best


def collective_uncertainty(collective: Collective, wires: Fabric) -> float:
    """Half-width of the band that should hold nine times in ten, as a share of the time. [1]

    What the fit of the outermost link left on points that it was not made from, for large or small
    messages.
    """
    group = collective.group
    if collective.message_bytes > LARGE or gloo_rates(group, wires):
        return bandwidth_uncertainty(group, wires)
    outer = wires.inter if group.nodes > 1 else wires.intra
    return outer.small_message_efficiency.rel_uncertainty or 0.0


def bandwidth_uncertainty(group: Group, wires: Fabric) -> float:
    """Return what bounds large messages of a group may be off by, as a share of the time. [1]"""
    if rates := gloo_rates(group, wires):
        return max(each.rel_uncertainty or 0.0 for each in rates)
    crosses = group.nodes > 1
    rate = narrowest_rate(wires) if crosses else ring_efficiency(wires.intra, int(group.ranks))
    return rate.rel_uncertainty or 0.0


def _in_one_domain(collective: Collective, wires: Fabric) -> tuple[Collective, Fabric]:
    """Take nodes that one NVLink domain joins for a single node, as NCCL does."""
    group = collective.group
    joined = replace(group, nodes=1, ranks_per_node=group.ranks) if group.nodes > 1 else group
    intra = wires.inter if group.nodes > 1 else wires.intra
    return replace(collective, group=joined), replace(wires, intra=intra)


def _own_bytes(collective: Collective, *, in_place: bool | None) -> Size:
    """Bytes of its own part that a rank copies. [B]"""
    stays = in_place if in_place is not None else collective.name == "all_gather"
    if collective.name not in {"all_gather", "reduce_scatter", "all_reduce"}:
        return 0
    copies = collective.name == "all_reduce" or not stays
    return copies * collective.message_bytes / collective.group.ranks


def _reductions(collective: Collective, wires: Fabric) -> Iterator[Size]:
    """Yield the times of an all-reduce by other ways than a ring. [s]"""
    group = collective.group
    if group.nodes > 1 and wires.inter.tree_efficiency is None:
        return
    if group.nodes > 1:
        yield tree_seconds(collective, wires)
    if wires.intra.switch_efficiency is not None and group.ranks_per_node > 1:
        yield switch_seconds(collective, wires)


def inter_node_wire_bytes(collective: Collective) -> Size:
    """Bytes that leave one node, divided by its members. [B]

    A ring crosses to the next node once, at the last member of each node: of what every rank
    sends, one rank's share in `ranks_per_node` goes out. In an all-to-all every rank sends each
    rank of another node its part.
    """
    group = collective.group
    if collective.name == "all_to_all":
        return collective.message_bytes * (group.ranks - group.ranks_per_node) / group.ranks
    crosses = (group.nodes > 1) * 1
    return crosses * collective.wire_bytes / group.ranks_per_node
