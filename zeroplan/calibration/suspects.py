"""A link far slower than its profile, and what usually makes it so.

Each suspect is a fabric that the machine may really have had: fewer NICs, sockets, PCIe. It is named
if that fabric would take about the time that was measured; more than one may, and none is proven.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log
from statistics import median
from typing import Final

from zeroplan.backtesting.collectives import Measured
from zeroplan.calibration.inside import NO_PEER_ACCESS, pcie_of
from zeroplan.calibration.sweeps import CLASSES, size_class
from zeroplan.comm.collectives import collective_seconds, collective_uncertainty
from zeroplan.comm.fabric import Fabric
from zeroplan.hardware import Catalogue
from zeroplan.records import dataclass, replace

__all__ = ["Slow", "Suspect", "slow_collectives"]

SLOW: Final = 0.7
"""Share of the expected bandwidth below which something is wrong. [1]"""
SOCKETS: Final = "ethernet-"
"""What the profiles of plain TCP begin with."""
LEAST_BAND: Final = 0.3
MOST_BAND: Final = 1.0
"""How far what was measured may be from what a suspect gives, by its own uncertainty. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """What may have slowed a link, and what it would have reached."""

    words: str
    bytes_per_second: float
    """Bus bandwidth in nccl-tests' convention. [B/s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A collective whose large messages are far slower than the profile says."""

    collective: str
    ranks: int
    nodes: int
    measured_bytes_per_second: float
    """Bus bandwidth of large messages, the median. [B/s]"""
    expected_bytes_per_second: float
    share: float
    """Measured over expected. [1]"""
    suspects: tuple[Suspect, ...]
    """The closest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guess:
    """One fabric that the machine may have had."""

    family: str
    """Of the guesses of one family the closest is named."""
    words: str
    wires: Fabric


def slow_collectives(rows: Iterable[Measured], catalogue: Catalogue) -> tuple[Slow, ...]:
    """Return the collectives that are far slower than their links' profiles and their bands say."""
    groups: dict[tuple[str, int, int], list[Measured]] = {}
    for row in rows:
        if size_class(row.call.message_bytes) == CLASSES[-1]:
            group = row.call.group
            groups.setdefault((row.call.name, group.ranks, group.nodes), []).append(row)
    found = (_slow(group, catalogue) for group in groups.values())
    return tuple(each for each in found if each is not None)


def _slow(rows: Sequence[Measured], catalogue: Catalogue) -> Slow | None:
    share = median(_seconds(row, row.wires) / row.seconds for row in rows)
    band = max(collective_uncertainty(row.call, row.wires) for row in rows)
    if share > min(SLOW, 1 / (1 + band)):
        return None
    call = rows[0].call
    return Slow(
        collective=call.name,
        ranks=int(call.group.ranks),
        nodes=int(call.group.nodes),
        measured_bytes_per_second=median(row.call.wire_bytes / row.seconds for row in rows),
        expected_bytes_per_second=_bandwidth(rows, rows[0].wires),
        share=share,
        suspects=_suspects(rows, catalogue),
    )


def _suspects(rows: Sequence[Measured], catalogue: Catalogue) -> tuple[Suspect, ...]:
    """Return the closest guess of each family, if it is close."""
    best: dict[str, tuple[float, _Guess]] = {}
    for guess in _guesses(rows[0], catalogue):
        distance = abs(median(log(_seconds(row, guess.wires) / row.seconds) for row in rows))
        band = max(collective_uncertainty(row.call, guess.wires) for row in rows)
        close = distance <= log(1 + min(MOST_BAND, max(LEAST_BAND, band)))
        if close and distance < best.get(guess.family, (exp(1), guess))[0]:
            best[guess.family] = distance, guess
    ordered = sorted(best.values(), key=lambda each: each[0])
    return tuple(
        Suspect(words=guess.words, bytes_per_second=_bandwidth(rows, guess.wires))
        for _, guess in ordered
    )


def _guesses(row: Measured, catalogue: Catalogue) -> Iterator[_Guess]:
    if row.call.group.nodes > 1 and row.wires.inter.scope == "cluster":
        yield from _between(row, catalogue)
    elif row.wires.intra.kind == "pcie":
        yield from _on_pcie(row, catalogue)
    else:
        yield from _on_nvlink(row, catalogue)


def _between(row: Measured, catalogue: Catalogue) -> Iterator[_Guess]:
    """Yield what slows a link between nodes."""
    wires = row.wires
    nics = round(wires.node_bytes_per_second / wires.inter.bandwidth_bytes_per_second.value)
    for link_id in catalogue.link_ids():
        if not link_id.startswith(SOCKETS) or link_id == wires.inter.id:
            continue
        link = catalogue.link(link_id)
        yield _Guess(
            family=SOCKETS,
            words=f"TCP sockets, as {link_id} has them: NET/Socket in NCCL's log (no driver or "
            "plugin, NCCL_IB_DISABLE, the wrong NCCL_SOCKET_IFNAME)",
            wires=replace(
                wires, inter=link, node_bytes_per_second=link.bandwidth_bytes_per_second.value
            ),
        )
    for up in sorted({1, 2, nics // 2} - {0}):
        if up < nics:
            yield _Guess(
                family="NICs",
                words=f"{up} of {nics} NICs at work (NCCL_IB_HCA, a rail or port that is down"
                f"{', two NICs behind one PCIe switch, no GPUDirect RDMA' * (2 * up == nics)})",
                wires=replace(wires, node_bytes_per_second=wires.node_bytes_per_second * up / nics),
            )


def _on_nvlink(row: Measured, catalogue: Catalogue) -> Iterator[_Guess]:
    """Yield what slows a link inside a node that is not PCIe."""
    wires = row.wires
    pcie = pcie_of(catalogue.gpu(row.cells.text("gpu").lower()), catalogue)
    for link_id, words in (
        (
            pcie,
            "PCIe instead of it (fabric manager, NCCL_P2P_LEVEL, a container without the switch)",
        ),
        (
            f"{pcie}{NO_PEER_ACCESS}",
            "host memory: no peer access (NCCL_P2P_DISABLE, IOMMU or ACS on, a virtual machine)",
        ),
    ):
        if link_id in catalogue.link_ids():
            link = catalogue.link(link_id)
            yield _Guess(family=link_id, words=words, wires=replace(wires, intra=link, inter=link))
    if wires.intra.switch_efficiency is not None and row.call.name == "all_reduce":
        ring = replace(wires.intra, switch_efficiency=None)
        yield _Guess(
            family="switch",
            words="a ring instead of sums in the switch (NCCL_NVLS_ENABLE, NCCL_ALGO)",
            wires=replace(wires, intra=ring, inter=ring),
        )
    yield _slower(wires, 2, "half of its links (nvidia-smi nvlink --status)")


def _on_pcie(row: Measured, catalogue: Catalogue) -> Iterator[_Guess]:
    """Yield what slows PCIe."""
    wires = row.wires
    staged = f"{wires.intra.id}{NO_PEER_ACCESS}"
    if staged in catalogue.link_ids():
        link = catalogue.link(staged)
        yield _Guess(
            family=staged,
            words="host memory: no peer access (IOMMU or ACS on, NCCL_P2P_DISABLE, the driver)",
            wires=replace(wires, intra=link, inter=link),
        )
    yield _slower(wires, 2, "a slot of 8 lanes or an older generation, or a switch's uplink shared")
    yield _slower(wires, 4, "a slot of 4 lanes, or two generations older (nvidia-smi -q -d PCIE)")


def _slower(wires: Fabric, factor: int, words: str) -> _Guess:
    rate = wires.intra.bandwidth_bytes_per_second
    link = replace(wires.intra, bandwidth_bytes_per_second=replace(rate, value=rate.value / factor))
    return _Guess(family="rate", words=words, wires=replace(wires, intra=link, inter=link))


def _seconds(row: Measured, wires: Fabric) -> float:
    return float(collective_seconds(row.call, wires, in_place=row.in_place))


def _bandwidth(rows: Sequence[Measured], wires: Fabric) -> float:
    """Return the bus bandwidth that some wires would give. [B/s]"""
    return median(float(row.call.wire_bytes) / _seconds(row, wires) for row in rows)
