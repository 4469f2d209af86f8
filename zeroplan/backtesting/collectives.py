"""Collectives: each row's time, as nccl-tests prints it, beside what `comm` says."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from zeroplan.backtesting.record import Backtest, Score, Skip
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric, fabric
from zeroplan.errors import SpecError, perhaps
from zeroplan.hardware import Catalogue, Gpu, Link, load_catalogue
from zeroplan.schedule.events import Collective, CollectiveName
from zeroplan.sharding.groups import Group
from zeroplan.units import GIGABIT, MIB

__all__ = ["backtest_collectives"]

COLUMNS: Final = ("fabric", "collective", "gpu", "n_gpus", "message_bytes", "time_us")

KINDS: Final = {
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
"""Fabric between nodes: the technology of its links."""

INSIDE: Final = ("nvlink", "pcie", "xgmi")
"""Fabrics inside a node; nodes that they join are one domain."""

SIZE_CLASSES: Final = ((1, "<=1MiB"), (16, "1-16MiB"), (256, "16-256MiB"))
"""Largest message of a class. [MiB]"""

NICS: Final = re.compile(r"(\d+)x(\d+)")
"""NICs of a node and the line rate of one [Gbit/s], as in "8x400 RoCE"."""

MICRO: Final = 1e-6


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
    rows: list[Score] = []
    skipped: list[Skip] = []
    for cells in read_table(Path(path), COLUMNS):
        try:
            rows.append(_score(cells, catalogue))
        except SpecError as error:
            skipped.append(Skip(id=cells.id, why=str(error)))
    return Backtest(rows=tuple(rows), skipped=tuple(skipped))


def _score(cells: Cells, catalogue: Catalogue) -> Score:
    gpu = catalogue.gpu(cells.text("gpu"))
    call = _collective(cells)
    seconds = collective_seconds(call, _wires(cells, call.group, gpu, catalogue))
    if cells.text("in_place").lower() == "no":
        seconds += _copy_seconds(call, gpu)
    measured = cells.positive("time_us")
    if measured is None:
        raise SpecError("time_us is blank")
    return Score(
        id=cells.id,
        source_id=cells.text("source"),
        group={
            "fabric": cells.text("fabric"),
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


def _wires(cells: Cells, group: Group, gpu: Gpu, catalogue: Catalogue) -> Fabric:
    """Return the links: inside a node the GPU's usual one, between nodes what the row says."""
    intra = catalogue.link(gpu.intra_link.value)
    per_node = group.ranks_per_node
    name, words = cells.text("fabric").lower(), cells.text("inter_link").lower()
    if group.nodes == 1 or name in INSIDE:
        return fabric(intra=intra, inter=intra, gpus_per_node=per_node, node=None)
    if name not in KINDS:
        raise SpecError(f"fabric {name!r} is not known.{perhaps(name, KINDS)}")
    inter = _link(KINDS[name], words, catalogue)
    wires = fabric(intra=intra, inter=inter, gpus_per_node=per_node, node=None)
    nics = NICS.search(words)
    if nics is None:
        cells.filled.append("inter_link")
        return wires
    return replace(wires, node_bytes_per_second=int(nics[1]) * int(nics[2]) * GIGABIT)


def _link(kind: str, words: str, catalogue: Catalogue) -> Link:
    """Return the link of a technology that shares most with a description, then the nearest rate."""
    nics = NICS.search(words)
    rate = int(nics[2]) * GIGABIT if nics else 0.0

    def nearness(link: Link) -> tuple[int, float]:
        shared = sum(len(part) for part in link.id.split("-") if part in words)
        return shared, -abs(link.bandwidth_bytes_per_second.value - rate)

    links = (catalogue.link(link_id) for link_id in catalogue.link_ids())
    return max((x for x in links if x.kind == kind and x.scope == "cluster"), key=nearness)


def _copy_seconds(call: Collective, gpu: Gpu) -> float:
    """Time in which an out-of-place gather or scatter copies its own shard. [s]"""
    if call.name == "all_reduce":
        return 0.0
    share: float = call.message_bytes / call.group.ranks
    return share / gpu.collective_copy_bytes_per_second.value


def _size_class(message_bytes: int) -> str:
    return next((name for top, name in SIZE_CLASSES if message_bytes <= top * MIB), ">256MiB")
