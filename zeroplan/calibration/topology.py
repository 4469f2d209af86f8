"""`nvidia-smi topo -m` as people paste it: which path joins every two devices of a node.

Beside the matrix the text may hold `nvidia-smi -L`, which names the GPUs, and `nvidia-smi topo
-p2p r`, which says whether they reach each other's memory. Meanings are those of the legend that
the command prints (nvidia-smi(1), driver 595).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from zeroplan.backtesting.pasted import pasted_lines
from zeroplan.errors import SpecError
from zeroplan.records import dataclass

__all__ = ["LEVELS", "Topology", "nvlinks", "parse_topology", "read_topology"]

LEVELS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCIe paths from near to far: one bridge, several, the host's bridge, between bridges of a NUMA
node, between sockets."""
OLDER: Final = {"SOC": "SYS"}
NVLINKS: Final = re.compile(r"NV(\d+)")
GPU: Final = re.compile(r"GPU\d+")
NIC_NAME: Final = re.compile(r"^\s*(NIC\d+):\s*(\S+)")
GPU_NAME: Final = re.compile(r"^\s*GPU\s+\d+:\s+(.+?)\s+\(UUID")
REACH: Final = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
"""Cells of the matrix of peer access: fine, or why not."""
SELF: Final = "X"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a node looks like from its GPUs."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    paths: Mapping[tuple[str, str], str]
    """What joins two devices: `NV4`, or one of the levels."""
    nic_names: Mapping[str, str]
    """The system's names of the NICs, where the legend tells them."""
    gpu_names: tuple[str, ...]
    """The driver's names of the GPUs, where they were pasted too."""
    peer_access: bool | None
    """Whether every two GPUs reach each other's memory; None where that was not pasted."""


def read_topology(path: Path) -> Topology:
    """Read a file that holds a matrix.

    Raises
    ------
    SpecError
        There is no such file, or no whole matrix in it.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SpecError(
            f"{path}: {error.strerror}; give the path of what `nvidia-smi topo -m` prints."
        ) from None
    try:
        return parse_topology(text)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def parse_topology(text: str) -> Topology:
    """Read a pasted matrix.

    Raises
    ------
    SpecError
        There is none, or a part of it is missing; the message names the row.
    """
    lines = [line for _, line in pasted_lines(text)]
    matrices = [_matrix(labels, rows) for labels, rows in _blocks(lines)]
    paths = next((m for m in matrices if not _is_of_access(m)), None)
    if paths is None:
        raise SpecError("no matrix of `nvidia-smi topo -m` in it; its first row begins with GPU0.")
    labels = list(dict.fromkeys(each for each, _ in paths))
    gpus = tuple(each for each in labels if GPU.fullmatch(each))
    access = next((m for m in matrices if _is_of_access(m)), None)
    return Topology(
        gpus=gpus,
        nics=tuple(each for each in labels if each not in gpus),
        paths=paths,
        nic_names={found[1]: found[2] for line in lines if (found := NIC_NAME.match(line))},
        gpu_names=tuple(found[1] for line in lines if (found := GPU_NAME.match(line))),
        peer_access=None if access is None else all(cell == "OK" for cell in access.values()),
    )


def nvlinks(path: str) -> int:
    """Return how many NVLinks a path bundles; 0 where it is PCIe."""
    found = NVLINKS.fullmatch(path)
    return int(found[1]) if found else 0


def _blocks(lines: Sequence[str]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the columns and the rows of each matrix."""
    labels: list[str] = []
    rows: list[list[str]] = []
    for line in lines:
        words = line.split()
        if words[:1] == ["GPU0"] and SELF not in words:
            if rows:
                yield labels, rows
            labels, rows = _labels(words), []
        elif labels and words and words[0] in labels:
            rows.append(words)
    if rows:
        yield labels, rows


def _labels(words: list[str]) -> list[str]:
    """Return the devices of a head, which "CPU Affinity" and the like follow."""
    return words[: words.index("CPU")] if "CPU" in words else words


def _matrix(labels: list[str], rows: list[list[str]]) -> dict[tuple[str, str], str]:
    known = {name: cells[: len(labels)] for name, *cells in rows}
    matrix = {}
    for name in labels:
        cells = known.get(name)
        if cells is None and GPU.fullmatch(name):
            raise SpecError(f"{name}: its row is missing; paste the whole matrix.")
        if cells is None:
            continue  # a column says the same
        if len(cells) < len(labels):
            raise SpecError(
                f"{name}: its row has {len(cells)} of {len(labels)} cells; paste it from a wider "
                "terminal, or from a file."
            )
        for other, cell in zip(labels, cells, strict=True):
            if other != name:
                matrix[name, other] = matrix[other, name] = _path(name, other, cell)
    return matrix or {(labels[0], labels[0]): SELF}


def _path(name: str, other: str, cell: str) -> str:
    path = OLDER.get(cell, cell)
    if path in LEVELS or path in REACH or nvlinks(path):
        return path
    raise SpecError(f"{name} to {other}: {cell!r} is no path; known: NV#, {', '.join(LEVELS)}.")


def _is_of_access(matrix: Mapping[tuple[str, str], str]) -> bool:
    return set(matrix.values()) <= REACH
