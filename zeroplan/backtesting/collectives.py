"""Collectives: each row's time, as nccl-tests prints it, beside what `comm` says."""

import re
from pathlib import Path
from typing import Final, get_args

from zeroplan.backtesting.record import Backtest, Score, Skip
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric, fabric
from zeroplan.errors import SpecError, perhaps
from zeroplan.hardware import Catalogue, Gpu, Link, load_catalogue
from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective, CollectiveName
from zeroplan.sharding.groups import Group
from zeroplan.units import GIGABIT, MIB

__all__ = ["backtest_collectives"]

COLUMNS: Final = ("fabric", "collective", "gpu", "n_gpus", "message_bytes", "time_us")

INSIDE: Final = ("nvlink", "pcie", "xgmi")
"""Fabrics inside a node; nodes that they join are one domain."""

BETWEEN: Final = {
    "infiniband": "infiniband",
    "roce": "roce",
    "efa": "efa",
    "slingshot": "slingshot",
    "omni-path": "omni-path",
    "gpudirect_tcpx": "ethernet",
    "ethernet": "ethernet",
    "tcp": "ethernet",
    "tcp_on_slingshot": "ethernet",
}
"""Fabrics between nodes: the technology of their links."""

SIZE_CLASSES: Final = ((1, "<=1MiB"), (16, "1-16MiB"), (256, "16-256MiB"))
"""Largest message of a class. [MiB]"""

NICS: Final = re.compile(r"(\d+)x(\d+)")
"""NICs of a node and the line rate of one [Gbit/s], as in "8x400 RoCE"."""

WORD: Final = re.compile(r"[a-z0-9]+")

MICRO: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hardware:
    """The profiles that rows are read with."""

    catalogue: Catalogue
    links: tuple[Link, ...]
    """All links, in the order of their ids."""


def backtest_collectives(path: str | Path, *, profiles: Path | None = None) -> Backtest:
    """Predict every collective of a table and lay the predictions beside what was measured.

    Parameters
    ----------
    path
        A CSV with one measured collective a row.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    SpecError
        The file is no such table; a row that cannot be predicted is skipped instead.

    """
    catalogue = load_catalogue(profiles)
    links = tuple(catalogue.link(link_id) for link_id in catalogue.link_ids())
    hardware = _Hardware(catalogue=catalogue, links=links)
    rows: list[Score] = []
    skipped: list[Skip] = []
    for cells in read_table(Path(path), COLUMNS):
        try:
            rows.append(_score(cells, hardware))
        except SpecError as error:
            skipped.append(Skip(id=cells.id, why=str(error)))
    return Backtest(rows=tuple(rows), skipped=tuple(skipped))


def _score(cells: Cells, hardware: _Hardware) -> Score:
    measured = cells.positive("time_us")
    if measured is None:
        raise SpecError("time_us is blank")
    gpu = hardware.catalogue.gpu(cells.text("gpu").lower())
    call = _collective(cells)
    seconds = collective_seconds(call, _wires(cells, call.group, gpu, hardware))
    if cells.text("in_place").lower() == "no":
        seconds += _copy_seconds(call, gpu)
    return Score(
        id=cells.id,
        source_id=cells.text("source"),
        group={
            "fabric": cells.text("fabric").lower(),
            "collective": call.name,
            "size_class": _size_class(call.message_bytes),
        },
        metric="seconds",
        measured=measured * MICRO,
        predicted=seconds,
        filled_in=tuple(cells.filled),
    )


def _collective(cells: Cells) -> Collective:
    """Return the call, whose message is the whole that is gathered or reduced."""
    word = cells.text("collective").lower()
    known: tuple[CollectiveName, ...] = get_args(CollectiveName)
    for name in known:
        if word == name:
            group = _group(cells)
            size = cells.whole("message_bytes")
            share = size // group.ranks
            return Collective(
                name=name,
                group=group,
                input_bytes=share if name == "all_gather" else size,
                output_bytes=share if name == "reduce_scatter" else size,
            )
    raise SpecError(f"collective {word!r} is not modelled.{perhaps(word, known)}")


def _group(cells: Cells) -> Group:
    ranks = cells.whole("n_gpus")
    nodes = _or_filled(cells, "n_nodes", 1)
    return Group(
        name="world",
        ranks=ranks,
        nodes=nodes,
        ranks_per_node=_or_filled(cells, "gpus_per_node", max(1, ranks // nodes)),
    )


def _or_filled(cells: Cells, column: str, default: int) -> int:
    if cells.text(column):
        return cells.whole(column)
    cells.filled.append(column)
    return default


def _wires(cells: Cells, group: Group, gpu: Gpu, hardware: _Hardware) -> Fabric:
    """Return the links of a row, with as many NICs as it states."""
    name = cells.text("fabric").lower()
    intra = _intra(name, cells.text("intra_link"), gpu, hardware)
    per_node = group.ranks_per_node
    if name in INSIDE or group.nodes == 1:
        return fabric(intra=intra, inter=intra, gpus_per_node=per_node, node=None)
    if name not in BETWEEN:
        raise SpecError(f"fabric {name!r} is not known.{perhaps(name, (*INSIDE, *BETWEEN))}")
    words = cells.text("inter_link")
    inter = _nearest(BETWEEN[name], "cluster", words, hardware.links)
    wires = fabric(intra=intra, inter=inter, gpus_per_node=per_node, node=None)
    nics = NICS.search(words)
    if nics is None:
        cells.filled.append("inter_link")
        return wires
    return replace(wires, node_bytes_per_second=int(nics[1]) * int(nics[2]) * GIGABIT)


def _intra(fabric_name: str, words: str, gpu: Gpu, hardware: _Hardware) -> Link:
    """Return the GPU's usual link inside a node, unless the row measured another technology."""
    usual = hardware.catalogue.link(gpu.intra_link.value)
    if fabric_name not in INSIDE or usual.kind == fabric_name:
        return usual
    return _nearest(fabric_name, "node", words, hardware.links)


def _nearest(kind: str, scope: str, description: str, links: tuple[Link, ...]) -> Link:
    """Return the link of a technology that shares most words with a description, then its rate."""
    text = description.lower().replace("pcie gen", "pcie")
    words = set(WORD.findall(text))
    nics = NICS.search(text)
    rate = int(nics[2]) * GIGABIT if nics else 0.0

    def nearness(link: Link) -> tuple[int, float]:
        shared = len(words.intersection(link.id.split("-")))
        return shared, -abs(link.bandwidth_bytes_per_second.value - rate)

    return max((x for x in links if x.kind == kind and x.scope == scope), key=nearness)


def _copy_seconds(call: Collective, gpu: Gpu) -> float:
    """Time in which an out-of-place gather or scatter copies its own shard. [s]"""
    if call.name == "all_reduce":
        return 0.0
    share: float = call.message_bytes / call.group.ranks
    return share / gpu.collective_copy_bytes_per_second.value


def _size_class(message_bytes: int) -> str:
    return next((name for top, name in SIZE_CLASSES if message_bytes <= top * MIB), ">256MiB")
