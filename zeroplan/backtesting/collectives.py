"""Collectives: each row's time, as nccl-tests prints it, beside what `comm` says."""

import re
from pathlib import Path
from typing import Final, get_args

from zeroplan.backtesting.record import Backtest, Score, Skip
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.comm.collectives import collective_seconds, collective_uncertainty
from zeroplan.comm.fabric import Fabric, fabric
from zeroplan.errors import SpecError, perhaps
from zeroplan.estimation.resolve import DEFAULT_GPU
from zeroplan.hardware import Catalogue, Gpu, Link, load_catalogue
from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective, CollectiveName
from zeroplan.sharding.groups import Group
from zeroplan.spec.words import Backend
from zeroplan.units import GIGABIT, MIB, MICRO, ceil_div

__all__ = ["Measured", "backtest_collectives", "collective_of", "measured_collectives"]

COLUMNS: Final = ("fabric", "collective", "gpu", "n_gpus", "message_bytes", "time_us")

INSIDE: Final = ("nvlink", "pcie", "xgmi", "loopback")
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

ALIASES: Final = {"infiniband": "ib"}
"""What a GPU's usual links are called, where it is not the technology."""

SOCKETS: Final = ("ethernet", "tcp", "tcp_on_slingshot")
"""Fabrics that are plain TCP, whatever the NICs."""

SIZE_CLASSES: Final = ((1, "<=1MiB"), (16, "1-16MiB"), (256, "16-256MiB"))
"""Largest message of a class. [MiB]"""

NICS: Final = re.compile(r"(\d+)x(\d+)")
"""NICs of a node and the line rate of one [Gbit/s], as in "8x400 RoCE"."""

DOMAIN: Final = re.compile(r"NVL(\d+)")
"""GPUs that NVLink joins across the trays of a rack, as in "NVL72": one node to NCCL."""

BACKENDS: Final[dict[str, Backend]] = {"": "nccl", "nccl": "nccl", "gloo": "gloo"}
"""Libraries; nccl-tests have no column for theirs."""

IN_PLACE: Final = {"yes": True, "no": False}

WORD: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hardware:
    """The profiles that rows are read with."""

    catalogue: Catalogue
    links: tuple[Link, ...]
    """All links, in the order of their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row of the table: a call, the links it ran on, and how long it took."""

    cells: Cells
    call: Collective
    wires: Fabric
    in_place: bool | None
    """Unknown where the row does not say."""
    seconds: float

    @property
    def size_class(self) -> str:
        """The class of its message's size."""
        size = self.call.message_bytes
        return next((name for top, name in SIZE_CLASSES if size <= top * MIB), ">256MiB")

    @property
    def outer(self) -> Link:
        """The link that the call is told apart by: between nodes if there are several."""
        return self.wires.inter if self.call.group.nodes > 1 else self.wires.intra


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
    measured, skipped = measured_collectives(path, load_catalogue(profiles))
    return Backtest(rows=tuple(_score(each) for each in measured), skipped=tuple(skipped))


def measured_collectives(
    path: str | Path, catalogue: Catalogue
) -> tuple[list[Measured], list[Skip]]:
    """Read every row of a table of collectives, or why it cannot be priced."""
    links = tuple(catalogue.link(link_id) for link_id in catalogue.link_ids())
    hardware = _Hardware(catalogue=catalogue, links=links)
    rows: list[Measured] = []
    skipped: list[Skip] = []
    for cells in read_table(Path(path), COLUMNS):
        try:
            rows.append(_measured(cells, hardware))
        except SpecError as error:
            skipped.append(Skip(id=cells.id, why=str(error)))
    return rows, skipped


def _measured(cells: Cells, hardware: _Hardware) -> Measured:
    microseconds = cells.positive("time_us")
    if microseconds is None:
        raise SpecError("time_us is blank")
    backend = _backend(cells)
    gpu = hardware.catalogue.gpu(_gpu(cells, backend))
    word, group = cells.text("collective").lower(), _group(cells)
    call = collective_of(word, group, cells.whole("message_bytes"))
    return Measured(
        cells=cells,
        call=call,
        wires=replace(_wires(cells, call.group, gpu, hardware), backend=backend),
        in_place=IN_PLACE.get(cells.text("in_place").lower()),
        seconds=microseconds * MICRO,
    )


def _backend(cells: Cells) -> Backend:
    word = cells.text("backend").lower()
    if word not in BACKENDS:
        raise SpecError(f"backend {word!r} is not modelled.{perhaps(word, BACKENDS)}")
    return BACKENDS[word]


def _gpu(cells: Cells, backend: Backend) -> str:
    """Return the id of a row's GPU; gloo's collectives run on hosts, which may have none."""
    named = cells.text("gpu").lower()
    return DEFAULT_GPU if backend == "gloo" and not named else named


def _score(row: Measured) -> Score:
    seconds = collective_seconds(row.call, row.wires, in_place=row.in_place)
    uncertainty = collective_uncertainty(row.call, row.wires)
    return Score(
        id=row.cells.id,
        source_id=row.cells.text("source"),
        group={
            "fabric": row.cells.text("fabric").lower(),
            "collective": row.call.name,
            "size_class": row.size_class,
        },
        metric="seconds",
        measured=row.seconds,
        predicted=seconds,
        low=seconds / (1 + uncertainty),
        high=seconds * (1 + uncertainty),
        filled_in=tuple(row.cells.filled),
    )


def collective_of(word: str, group: Group, message_bytes: int) -> Collective:
    """Return the call of a name, whose message is the whole that is gathered or reduced.

    Raises
    ------
    SpecError
        No such collective is modelled.
    """
    known: tuple[CollectiveName, ...] = get_args(CollectiveName)
    for name in known:
        if word == name:
            share = message_bytes // group.ranks
            return Collective(
                name=name,
                group=group,
                input_bytes=share if name == "all_gather" else message_bytes,
                output_bytes=share if name == "reduce_scatter" else message_bytes,
            )
    raise SpecError(f"collective {word!r} is not modelled.{perhaps(word, known)}")


def _group(cells: Cells) -> Group:
    ranks = cells.whole("n_gpus")
    nodes = _or_filled(cells, "n_nodes", 1)
    per_node = _or_filled(cells, "gpus_per_node", max(1, ranks // nodes))
    domain = DOMAIN.search(cells.text("intra_link"))
    if domain is not None:
        per_node = min(ranks, int(domain[1]))
        nodes = ceil_div(ranks, per_node)
    return Group(name="world", ranks=ranks, nodes=nodes, ranks_per_node=per_node)


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
        return fabric(intra=intra, inter=intra, gpus_per_node=per_node, node=None, gpu=gpu)
    if name not in BETWEEN:
        raise SpecError(f"fabric {name!r} is not known.{perhaps(name, (*INSIDE, *BETWEEN))}")
    words = cells.text("inter_link")
    inter = _inter(BETWEEN[name], name, words, gpu, hardware)
    wires = fabric(intra=intra, inter=inter, gpus_per_node=per_node, node=None, gpu=gpu)
    nics = NICS.search(words)
    if nics is None:
        cells.filled.append("inter_link")
        return wires
    line = int(nics[1]) * int(nics[2]) * GIGABIT * _trays(cells, group)
    return replace(wires, node_bytes_per_second=line)


def _inter(kind: str, fabric_name: str, words: str, gpu: Gpu, hardware: _Hardware) -> Link:
    """Return the link between nodes that a row describes; the GPU's usual one without a rate."""
    if (named := _named(words, "cluster", hardware)) is not None:
        return named
    alias = ALIASES.get(kind, kind)
    if NICS.search(words) is None and alias in gpu.usual_links:
        return hardware.catalogue.link(gpu.usual_links[alias].value)
    described = words if fabric_name not in SOCKETS else f"ethernet {words}"
    return _nearest(kind, "cluster", described, hardware.links)


def _trays(cells: Cells, group: Group) -> int:
    """Return the hosts, each with its NICs, that make one NVLink domain."""
    per_host = cells.text("gpus_per_node")
    return group.ranks_per_node // int(per_host) if per_host.isdecimal() else 1


def _intra(fabric_name: str, words: str, gpu: Gpu, hardware: _Hardware) -> Link:
    """Return the GPU's usual link inside a node, unless the row measured another technology."""
    if (named := _named(words, "node", hardware)) is not None:
        return named
    usual = hardware.catalogue.link(gpu.intra_link.value)
    if fabric_name not in INSIDE or usual.kind == fabric_name:
        return usual
    return _nearest(fabric_name, "node", words, hardware.links)


def _named(words: str, scope: str, hardware: _Hardware) -> Link | None:
    """Return the link whose profile a row names by its id."""
    return next((x for x in hardware.links if x.id == words.lower() and x.scope == scope), None)


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
