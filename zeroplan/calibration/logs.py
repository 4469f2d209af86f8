"""Logs of nccl-tests as measured collectives of one link."""

import re
from pathlib import Path
from typing import Final, get_args

from zeroplan.backtesting.collectives import Measured
from zeroplan.backtesting.record import Skip
from zeroplan.backtesting.table import Cells
from zeroplan.calibration.nccl_tests import Measured as LogRow
from zeroplan.calibration.nccl_tests import parse_log
from zeroplan.comm.fabric import fabric
from zeroplan.errors import SpecError
from zeroplan.hardware import Catalogue, Gpu, Link
from zeroplan.schedule.events import Collective, CollectiveName
from zeroplan.sharding.groups import Group

__all__ = ["gpu_of", "measured_log"]

WORD: Final = re.compile(r"[a-z0-9]+")
VENDORS: Final = frozenset({"nvidia", "amd", "instinct", "tesla", "geforce", "rtx"})
FORM_BY_MEMORY: Final = {"hbm3": "sxm5"}
"""H100s name their memory where they have a socket, and "PCIe" where they have not."""


def measured_log(path: Path, link: Link, catalogue: Catalogue) -> tuple[list[Measured], list[Skip]]:
    """Read a log whose collectives ran on a link, between nodes if it joins nodes.

    Raises
    ------
    SpecError
        There is no such file, it is no text, or it names a GPU without a profile.
    """
    try:
        parsed = parse_log(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}.") from None
    rows = [_measured(path, row, link, catalogue) for row in parsed.rows]
    return rows, [Skip(id=path.name, why=note) for note in parsed.notes]


def _measured(path: Path, row: LogRow, link: Link, catalogue: Catalogue) -> Measured:
    gpu = gpu_of(row.gpu, catalogue)
    between = link.scope != "node" and row.nodes > 1
    intra = catalogue.link(gpu.intra_link.value) if between else link
    wires = fabric(intra=intra, inter=link, gpus_per_node=row.ranks_per_node, gpu=gpu, node=None)
    group = Group(name="world", ranks=row.ranks, nodes=row.nodes, ranks_per_node=row.ranks_per_node)
    share = row.message_bytes // row.ranks
    call = Collective(
        name=_name(row.collective),
        group=group,
        input_bytes=share if row.collective == "all_gather" else row.message_bytes,
        output_bytes=share if row.collective == "reduce_scatter" else row.message_bytes,
    )
    return Measured(
        cells=Cells({"source": path.name, "gpu": gpu.id}, line=0),
        call=call,
        wires=wires,
        in_place=row.in_place,
        seconds=row.seconds,
    )


def _name(collective: str) -> CollectiveName:
    names: tuple[CollectiveName, ...] = get_args(CollectiveName)
    return next(name for name in names if name == collective)


def gpu_of(device: str, catalogue: Catalogue) -> Gpu:
    """Return the profile of a device as its driver names it ("NVIDIA H100 80GB HBM3").

    The model comes first in a profile's name and must be there; of those that share it the one with
    most words in common is taken.

    Raises
    ------
    SpecError
        No profile is of that model.
    """
    words = set(WORD.findall(device.lower())) - VENDORS
    words |= {form for memory, form in FORM_BY_MEMORY.items() if memory in words}
    same = [i for i in catalogue.gpu_ids() if words & {i.removeprefix("rtx-").split("-")[0]}]
    if not same:
        raise SpecError(
            f"{device!r} has no GPU profile: add one with --profiles, or name the GPU in a table."
        )
    best = max(same, key=lambda i: (len(words & set(i.split("-"))), -len(i)))
    return catalogue.gpu(best)
