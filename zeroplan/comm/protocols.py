"""The protocols of NCCL: what each takes, and what NCCL believes that it takes.

LL sends a flag with every word, LL128 with every 128 bytes; Simple waits for whole chunks. NCCL
does not measure: it takes the one that a table of its own holds for fastest (src/graph/tuning.cc,
2.30), and leaves the first two sooner than it should. Every sweep has a jump there.
"""

from functools import reduce
from typing import Final

from zeroplan.comm.fabric import Fabric
from zeroplan.hardware import Link, Quantity
from zeroplan.records import dataclass
from zeroplan.units import Size, minimum

__all__ = [
    "Protocol",
    "Steps",
    "bulk",
    "known",
    "low_latency",
    "low_latency_chosen",
    "low_latency_seconds",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What an algorithm does, whatever the protocol."""

    inside: Size
    """Steps from GPU to GPU in a node. [count]"""
    between: Size
    """Steps from node to node. [count]"""
    links: Size
    """Time of its bytes at the bandwidth of Simple. [s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The constants of one protocol. [s], [1]"""

    base: float
    inside: float
    """Step from GPU to GPU in a node."""
    between: float
    """Step from node to node."""
    efficiency: float
    """Share of the bandwidth that Simple has."""

    def waits(self, steps: Steps) -> Size:
        """Time of the steps without their bytes. [s]"""
        return steps.inside * self.inside + steps.between * self.between

    def seconds(self, steps: Steps) -> Size:
        """Time of steps and bytes. [s]"""
        return self.base + self.waits(steps) + steps.links / self.efficiency


LL: Final = Protocol(base=6.6e-6, inside=0.6e-6, between=2.7e-6, efficiency=0.375)
LL128: Final = Protocol(base=14e-6, inside=1.9e-6, between=4e-6, efficiency=0.92)
SIMPLE: Final = Protocol(base=8.4e-6, inside=3.4e-6, between=14e-6, efficiency=1.0)
"""NCCL's own table for rings through NVLink: by it a protocol is chosen, not timed.

LL's bandwidth is a cap there, 0.33 to 0.39 of a ring's in one node of V100 to B200.
"""

PLATEAU: Final = 1.4
"""What NCCL multiplies Simple's latencies by in an all-reduce through several nodes. [1]"""


def low_latency_chosen(wires: Fabric, steps: Steps, *, several: bool, reduces: bool) -> Size:
    """Whether NCCL holds LL or LL128 for faster than Simple, where all of them can be used.

    Where there is no LL128, NCCL's table is right about LL as well, but LL's times are not known well
    enough for it to help: they grow with the channels.
    """
    if len(low_latency(wires, several=several)) == 1:
        return True
    worse = PLATEAU if several and reduces else 1.0
    simple = worse * (SIMPLE.base + SIMPLE.waits(steps)) + steps.links
    return minimum(LL.seconds(steps), LL128.seconds(steps)) <= simple


def low_latency_seconds(wires: Fabric, steps: Steps, *, several: bool) -> Size:
    """Time with the faster of LL and LL128. [s]"""
    return reduce(minimum, (each.seconds(steps) for each in low_latency(wires, several=several)))


def bulk(wires: Fabric, *, several: bool) -> Protocol:
    """Return Simple for a group on one node or on several."""
    outer = _outer(wires, several=several)
    return Protocol(
        base=outer.base_seconds.value,
        inside=wires.intra.latency_seconds.value,
        between=outer.latency_seconds.value,
        efficiency=1.0,
    )


def low_latency(wires: Fabric, *, several: bool) -> list[Protocol]:
    """Return LL, and LL128 where the links have it."""
    outer = _outer(wires, several=several)
    words = Protocol(
        base=outer.small_message_base_seconds.value,
        inside=wires.intra.small_message_latency_seconds.value,
        between=outer.small_message_latency_seconds.value,
        efficiency=outer.small_message_efficiency.value,
    )
    lines = _ll128(wires, several=several)
    return [words] if lines is None else [words, lines]


def known(quantity: Quantity | None) -> float:
    """Return a number that a link without it is not asked for."""
    if quantity is None:
        raise AssertionError
    return quantity.value


def _ll128(wires: Fabric, *, several: bool) -> Protocol | None:
    """Return LL128, which NCCL uses where all links from GPU to GPU have it."""
    intra, outer = wires.intra, _outer(wires, several=several)
    if intra.ll128_efficiency is None or outer.ll128_efficiency is None:
        return None
    return Protocol(
        base=known(outer.ll128_base_seconds),
        inside=known(intra.ll128_latency_seconds),
        between=known(outer.ll128_latency_seconds),
        efficiency=outer.ll128_efficiency.value,
    )


def _outer(wires: Fabric, *, several: bool) -> Link:
    return wires.inter if several else wires.intra
