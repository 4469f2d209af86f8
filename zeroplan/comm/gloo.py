"""Collectives by gloo: which algorithm each one is, and the figures that a link has for it.

Counted on a veth pair and on the loopback of torch 2.13 (`benchmarks/slow_link.py`): bytes of the
payload that a rank sends are those of `on_the_wire` to a thousandth.
"""

from zeroplan.comm.algorithms import ring_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.hardware import Link, Quantity
from zeroplan.records import replace
from zeroplan.schedule.events import Collective
from zeroplan.sharding.groups import Group
from zeroplan.units import Size, doublings

__all__ = ["gloo_rates", "gloo_seconds", "on_the_wire"]


def on_the_wire(collective: Collective, wires: Fabric) -> Collective:
    """Return what a backend makes of a call: gloo reduce-scatters by an all-reduce of the input.

    Source: `ProcessGroupGloo::_reduce_scatter_base` in
    torch/csrc/distributed/c10d/ProcessGroupGloo.cpp (2.13).
    """
    if wires.backend != "gloo" or collective.name != "reduce_scatter":
        return collective
    return replace(collective, name="all_reduce", output_bytes=collective.input_bytes)


def gloo_seconds(collective: Collective, wires: Fabric) -> Size:
    """Time of one collective by gloo. [s]

    steps a + W / B, with a and B of that very collective: all of them are CPU-bound to a different
    degree, so that one bandwidth of the link does not do. A ring takes n - 1 steps, an all-reduce
    2 (n - 1); a broadcast goes down a binomial tree, whose root sends the whole log2(n) times.
    Groups that share a node share its NICs. Where a link has no figures of gloo, NCCL's ring stands
    in for it.
    """
    group, link = collective.group, _link(collective.group, wires)
    steps, sent = _course(on_the_wire(collective, wires))
    rate = link.gloo_bytes_per_second.get(collective.name)
    step = link.gloo_step_seconds.get(collective.name)
    if rate is None or step is None:
        return ring_seconds(on_the_wire(collective, wires), wires, 0)
    share = group.ranks_per_node / wires.gpus_per_node if group.nodes > 1 else 1.0
    return steps * step.value + sent / (rate.value * share)


def gloo_rates(group: Group, wires: Fabric) -> tuple[Quantity, ...]:
    """Return what a group's link has of gloo; nothing where another library runs."""
    if wires.backend != "gloo":
        return ()
    return tuple(_link(group, wires).gloo_bytes_per_second.values())


def _course(collective: Collective) -> tuple[Size, Size]:
    """Return the steps of a collective and what the busiest rank sends in them. [1], [B]"""
    ranks = collective.group.ranks
    if collective.name == "broadcast":
        return doublings(ranks), doublings(ranks) * collective.message_bytes
    passes = 2 if collective.name == "all_reduce" else 1
    return passes * (ranks - 1), collective.wire_bytes


def _link(group: Group, wires: Fabric) -> Link:
    return wires.inter if group.nodes > 1 else wires.intra
