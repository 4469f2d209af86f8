"""Charts that a command writes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from zeroplan.cli.files import write_by
from zeroplan.cli.progress import working
from zeroplan.errors import UsageError

if TYPE_CHECKING:
    from zeroplan.report.charts.picture import Chart, Kind

__all__ = ["suffix_of", "write_picture"]


def suffix_of(path: Path, option: str) -> str:
    """Return the suffix of a picture's name; UsageError where no picture ends like that."""
    from zeroplan.report.charts.picture import PICTURES  # noqa: PLC0415  # not for --help

    if path.suffix not in PICTURES:
        raise UsageError(f"{option} {path}: a picture's name ends in one of {', '.join(PICTURES)}.")
    return path.suffix


def write_picture(kind: "Kind", data: "Chart", path: Path, option: str) -> None:
    """Draw a chart into a file and tell in words what it shows."""
    from zeroplan.report.charts.picture import figure_of, save  # noqa: PLC0415

    suffix = suffix_of(path, option)

    def draw(part: Path) -> None:
        with working("drawing"):
            save(figure_of(kind, data), part, suffix, data.title, data.alt)

    write_by(path, draw, option)
    sys.stderr.write(f"{data.title}.\n{data.alt}\n")
