"""Logs of nccl-tests and rccl-tests, as people paste them, as measured collectives.

What varies between versions is read from the log itself: the columns from the table's header, the
order of out-of-place and in-place from the line above it, the ranks from the list of devices, the
collective from the program's name or, without one, from bus over algorithm bandwidth
(doc/PERFORMANCE.md of nccl-tests).
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from zeroplan.records import dataclass, field
from zeroplan.units import GIGA

__all__ = ["Measured", "ParsedLog", "parse_log"]

MICRO: Final = 1e-6
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
PROGRAM: Final = re.compile(r"^(?!.*concluded).*?\b([a-z_]+)_perf\b")
START: Final = re.compile(r"\bnThread:?\s+\d+\s+nGpus:?\s+\d+")
DEVICE: Final = re.compile(
    r"Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+\d+\s+\[[^\]]*\]\s+(?P<gpu>.*\S)"
)
HEADER: Final = re.compile(r"#\s*(?P<columns>(?:\S+\s+)*size\s+count\b.*\btime\b.*)")
NUMBER: Final = re.compile(r"\d+")

COLLECTIVES: Final = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
}
"""Program of nccl-tests without its ending: the name of the collective."""
SLACK: Final = 0.05
"""How far a time may be from size over algorithm bandwidth; both are printed rounded. [1]"""
ROUNDED_GBPS: Final = 0.5
"""Algorithm bandwidths below this have too few digits to check a time with. [GB/s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One timed collective."""

    collective: str
    gpu: str
    """The device's name as the driver gives it."""
    ranks: int
    ranks_per_node: int
    nodes: int
    message_bytes: int
    """Size in nccl-tests' convention: the whole that is gathered or reduced. [B]"""
    in_place: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLog:
    """What a log held: the measured rows, and a line for everything that was left out."""

    rows: tuple[Measured, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Run:
    """One program run inside a log."""

    before: list[tuple[int, str, str]] = field(default_factory=list)
    """Devices of the run before, which a second table of the same job does not repeat."""
    program: str | None = None
    listed: list[tuple[int, str, str]] = field(default_factory=list)
    """Rank, host and device of each line of the list."""
    columns: list[str] = field(default_factory=list)
    in_place_first: bool = False
    lines: list[tuple[int, list[str]]] = field(default_factory=list)
    """Rows of the table with the number of their line."""

    @property
    def devices(self) -> list[tuple[int, str, str]]:
        """The ranks that ran."""
        return self.listed or self.before


def parse_log(text: str) -> ParsedLog:
    """Read a log that may hold several runs between other output.

    Launchers' prefixes (`[1,0]<stdout>:`, a host's name, a time) and colours are skipped. A run
    whose ranks or collective cannot be told, and a row that contradicts itself, is left out and
    noted.
    """
    rows: list[Measured] = []
    notes: list[str] = []
    for run in _runs(text):
        try:
            rows += _measured(run, notes)
        except ValueError as error:
            notes.append(f"line {run.lines[0][0]}: {error}")
    if not rows and not notes:
        notes.append("no table of nccl-tests or rccl-tests in it")
    return ParsedLog(rows=tuple(rows), notes=tuple(notes))


def _runs(text: str) -> Iterator[_Run]:
    run = _Run()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = COLOURS.sub("", raw)
        program, device, header = PROGRAM.search(line), DEVICE.search(line), HEADER.search(line)
        if run.lines and (START.search(line) or program or device or header):
            yield run
            run = _Run(before=run.devices)
        if program:
            run.program = program[1]
        if device:
            run.listed.append((int(device["rank"]), device["host"], device["gpu"]))
        if header:
            run.columns = header["columns"].split()
        elif "in-place" in line and "out-of-place" in line:
            run.in_place_first = line.index(" in-place") < line.index("out-of-place")
        elif run.columns:
            cells = _cells(line, run.columns)
            if cells:
                run.lines.append((number, cells))
    if run.lines:
        yield run


def _cells(line: str, columns: list[str]) -> list[str]:
    """Return the cells of a table's row; none where a line is something else."""
    cells = line.replace(">:", " ").split()[-len(columns) :]
    size = columns.index("size")
    whole = len(cells) == len(columns) and "#" not in line
    return cells if whole and all(map(NUMBER.fullmatch, cells[size : size + 2])) else []


def _measured(run: _Run, notes: list[str]) -> list[Measured]:
    ranks = [rank for rank, _, _ in run.devices]
    if not ranks:
        raise ValueError("the list of devices is missing, so the number of ranks is not known")
    if len(set(ranks)) < len(ranks):
        raise ValueError(
            "rank 0 is listed twice: separate jobs of one rank, as from nccl-tests built without "
            "MPI; build it with MPI=1"
        )
    hosts = Counter(host for _, host, _ in run.devices)
    if len(set(hosts.values())) > 1:
        raise ValueError(f"{len(ranks)} ranks are spread unevenly over {len(hosts)} hosts")
    name = _collective(run, len(ranks))
    rows = []
    for number, cells in run.lines:
        for in_place, at in _halves(run):
            seconds = _seconds(run, cells, at)
            if isinstance(seconds, str):
                notes.append(f"line {number}: {seconds}")
            elif seconds:
                row = Measured(
                    collective=name,
                    gpu=run.devices[0][2],
                    ranks=len(ranks),
                    ranks_per_node=len(ranks) // len(hosts),
                    nodes=len(hosts),
                    message_bytes=int(cells[run.columns.index("size")]),
                    in_place=in_place,
                    seconds=seconds,
                )
                rows.append(row)
    return rows


def _halves(run: _Run) -> list[tuple[bool, int]]:
    """Return whether a half of the table is in place, and where its time stands."""
    times = [index for index, column in enumerate(run.columns) if column == "time"]
    order = (True, False) if run.in_place_first else (False, True)
    return list(zip(order, times, strict=False))


def _seconds(run: _Run, cells: list[str], at: int) -> float | str:
    """Return a time, 0 where there is none, or what is wrong with it. [s]"""
    size = int(cells[run.columns.index("size")])
    time, rate = _number(cells[at]), _number(cells[at + 1])
    if not time or not size:
        return 0.0
    seconds = time * MICRO
    if rate and rate > ROUNDED_GBPS:
        by_rate = size / (rate * GIGA)
        # before 2020 all-gather and reduce-scatter printed a rate without their own share
        own_share = 1 - 1 / len(run.devices)
        if min(abs(seconds / by - 1) for by in (by_rate, by_rate * own_share)) > SLACK:
            return f"{cells[at]} us do not give {cells[at + 1]} GB/s; is it another unit?"
    return seconds


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # N/A
        return None


def _collective(run: _Run, ranks: int) -> str:
    if run.program is not None:
        if run.program not in COLLECTIVES:
            raise ValueError(f"{run.program}_perf is not modelled")
        return COLLECTIVES[run.program]
    found = {name for _, cells in run.lines if (name := _by_rates(run, cells, ranks))}
    if len(found) != 1:
        raise ValueError("neither a program's name nor the bandwidths tell which collective it is")
    return found.pop()


def _by_rates(run: _Run, cells: list[str], ranks: int) -> str | None:
    """Tell a collective by bus over algorithm bandwidth and by whether it reduces.

    Between two ranks all-reduce and broadcast look alike.
    """
    at = run.columns.index("algbw")
    rate, bus = _number(cells[at]), _number(cells[at + 1])
    if ranks <= 2 or not rate or not bus or rate < ROUNDED_GBPS:  # noqa: PLR2004  # see above
        return None
    share = (ranks - 1) / ranks
    reduces = "redop" in run.columns and cells[run.columns.index("redop")] != "none"
    gathers = "reduce_scatter" if reduces else "all_gather"
    expected = {"all_reduce": 2 * share, gathers: share, "broadcast": 1.0}
    name = min(expected, key=lambda each: abs(bus / rate / expected[each] - 1))
    return name if abs(bus / rate / expected[name] - 1) < SLACK else None
