"""The collectives of a record as the table that `backtest` and `calibrate` read."""

import csv
import io
from pathlib import Path
from typing import Final

from zeroplan.units import MICRO
from zeroplan.validate.comparing import question_of
from zeroplan.validate.measurement import RunRecord

__all__ = ["to_csv"]

COLUMNS: Final = (
    *("id", "source", "fabric", "collective", "gpu", "n_gpus", "gpus_per_node", "n_nodes"),
    *("intra_link", "inter_link", "message_bytes", "in_place", "time_us"),
)

LOOPBACK: Final = "loopback"


def to_csv(record: RunRecord, profiles: Path | None = None) -> str:
    """Return one row for each collective of the micro-benches, the median of its times.

    Links are those that the run names, or the usual ones of its GPU; processes on CPUs meet over
    the loopback.
    """
    question = question_of(record, profiles)
    on_gpus = record.backend == "cuda"
    gpu = question.gpu.id if on_gpus else ""
    intra, inter = question.wires.intra, question.wires.inter
    points = () if record.measured is None else record.measured.micro_benches.collectives
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for number, point in enumerate(points, 1):
        one_node = point.n_nodes == 1
        table.writerow(
            (
                f"{number}",
                f"zeroplan validate {record.date}",
                (intra if one_node else inter).kind if on_gpus else LOOPBACK,
                point.collective,
                gpu,
                point.n_gpus,
                point.gpus_per_node,
                point.n_nodes,
                intra.id if on_gpus else LOOPBACK,
                "" if one_node or not on_gpus else inter.id,
                point.message_bytes,
                "yes" if point.in_place else "no",
                f"{point.seconds.median / MICRO:.6g}",
            )
        )
    return text.getvalue()
