"""Tables of nccl-tests and rccl-tests in a log, whatever version printed them.

What varies is read from the log itself: the columns from the table's header, the order of
out-of-place and in-place from the line above it, the ranks from the list of devices. Layouts:
src/common.cu and src/util.cu of nccl-tests 1.0 to 2.18.
"""

import re
from collections.abc import Iterator
from typing import Final

from zeroplan.backtesting.pasted import pasted_lines
from zeroplan.records import dataclass, field
from zeroplan.units import MICRO, MILLI

__all__ = ["Device", "LogRun", "runs_in"]

PROGRAM: Final = re.compile(r"^(?!.*concluded).*?\b([a-z_]+)_perf(?:_mpi)?\b")
START: Final = re.compile(r"\bnThread:?\s+\d+\s+nGpus:?\s+\d+")
DEVICE: Final = re.compile(
    r"Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?(?:Pid\s+\d+\s+)?"
    r"on\s+(?P<host>\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(?P<gpu>.*\S)"
)
HEADER: Final = re.compile(
    r"#\s*(?P<columns>(?:\S+\s+)*(?:size\s+count|bytes\s+N)\b.*\b(?:cpu)?time\b.*)"
)
FOLDED: Final = re.compile(r"#\s*(?:size\s+count|bytes\s+N)\b")
NUMBER: Final = re.compile(r"\d+")

RENAMED: Final = {
    "bytes": ("size",),
    "N": ("count",),
    "op": ("redop",),
    "timestamp": ("date", "clock"),
}
"""Columns of version 1 by their later names, and one that prints two words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A line of the list of devices."""

    rank: int
    group: int
    host: str
    gpu: str
    """The device's name as the driver gives it."""


@dataclass(slots=True)
class LogRun:
    """One program run inside a log."""

    before: list[Device] = field(default_factory=list)
    """Devices of the run before, which a second table of the same job does not repeat."""
    program: str | None = None
    listed: list[Device] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    unit_seconds: float = MICRO
    """What a time is counted in: milliseconds in version 1."""
    in_place_first: bool = False
    lines: list[tuple[int, list[str]]] = field(default_factory=list)
    """Rows of the table with the number of their line."""

    @property
    def devices(self) -> list[Device]:
        """The ranks that ran."""
        return self.listed or self.before


def runs_in(text: str) -> Iterator[LogRun]:
    """Yield the runs of a log that have rows.

    Launchers' prefixes (`[1,0]<stdout>:`, a host's name, a time), colours and containers' envelopes
    are skipped, and lines that a terminal folded are whole again.
    """
    run = LogRun()
    for number, line in pasted_lines(text, _is_folded):
        program, device, header = PROGRAM.search(line), DEVICE.search(line), HEADER.search(line)
        if run.lines and (START.search(line) or program or device or header):
            yield run
            run = LogRun(before=run.devices)
        if program:
            run.program = program[1]
        if device:
            run.listed.append(_device(device))
        if header:
            _take_header(run, header["columns"].split())
        elif "in-place" in line and "out-of-place" in line:
            run.in_place_first = line.index(" in-place") < line.index("out-of-place")
        elif run.columns:
            cells = _cells(line, run.columns)
            if cells:
                run.lines.append((number, cells))
    if run.lines:
        yield run


def _is_folded(line: str, rest: str) -> bool:
    """Whether a table's header goes on in the next line; units follow a whole one, or a row."""
    goes_on = bool(rest.strip()) and "(" not in rest and not NUMBER.search(rest)
    return goes_on and FOLDED.search(line) is not None


def _device(found: re.Match[str]) -> Device:
    group = int(found["group"] or 0)
    return Device(rank=int(found["rank"]), group=group, host=found["host"], gpu=found["gpu"])


def _take_header(run: LogRun, columns: list[str]) -> None:
    run.unit_seconds = MILLI if "bytes" in columns else MICRO
    run.columns = [name for column in columns for name in RENAMED.get(column, (column,))]


def _cells(line: str, columns: list[str]) -> list[str]:
    """Return the cells of a table's row; none where a line is something else."""
    cells = line.replace(">:", " ").split()[-len(columns) :]
    size = columns.index("size")
    whole = len(cells) == len(columns) and "#" not in line
    return cells if whole and all(map(NUMBER.fullmatch, cells[size : size + 2])) else []
