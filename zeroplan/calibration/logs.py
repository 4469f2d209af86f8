"""Logs of nccl-tests as measured collectives of one link."""

from pathlib import Path

from zeroplan.backtesting.collectives import Measured, collective_of
from zeroplan.backtesting.record import Skip
from zeroplan.backtesting.table import Cells
from zeroplan.calibration.nccl_tests import Measured as LogRow
from zeroplan.calibration.nccl_tests import parse_log
from zeroplan.comm.fabric import fabric
from zeroplan.errors import SpecError
from zeroplan.hardware import Catalogue, Link
from zeroplan.hardware.naming import gpu_of
from zeroplan.sharding.groups import Group

__all__ = ["measured_log"]


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
        raise SpecError(
            f"{path}: {error.strerror}; give the path of a log of nccl-tests or rccl-tests."
        ) from None
    rows = [_measured(path, row, link, catalogue) for row in parsed.rows]
    return rows, [Skip(id=path.name, why=note) for note in parsed.notes]


def _measured(path: Path, row: LogRow, link: Link, catalogue: Catalogue) -> Measured:
    gpu = gpu_of(row.gpu, catalogue)
    between = link.scope != "node" and row.nodes > 1
    intra = catalogue.link(gpu.intra_link.value) if between else link
    wires = fabric(intra=intra, inter=link, gpus_per_node=row.ranks_per_node, gpu=gpu, node=None)
    group = Group(name="world", ranks=row.ranks, nodes=row.nodes, ranks_per_node=row.ranks_per_node)
    return Measured(
        cells=Cells({"source": path.name, "gpu": gpu.id}, line=0),
        call=collective_of(row.collective, group, row.message_bytes),
        wires=wires,
        in_place=row.in_place,
        seconds=row.seconds,
    )
