"""Logs of nccl-tests and rccl-tests, as people paste them, as measured collectives.

The collective is told by the program's name or, without one, by bus over algorithm bandwidth
(doc/PERFORMANCE.md of nccl-tests).
"""

from collections import Counter
from statistics import median
from typing import Final

from zeroplan.calibration.nccl_layout import LogRun, runs_in
from zeroplan.records import dataclass
from zeroplan.units import GIGA

__all__ = ["Measured", "ParsedLog", "parse_log"]

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
LAST_DIGIT_GBPS: Final = 0.01
"""Bandwidths are printed to this. [GB/s]"""


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


def parse_log(text: str) -> ParsedLog:
    """Read a log that may hold several runs between other output.

    Launchers' prefixes (`[1,0]<stdout>:`, a host's name, a time) and colours are skipped. A run
    whose ranks or collective cannot be told, and a row that contradicts itself, is left out and
    noted.
    """
    rows: list[Measured] = []
    notes: list[str] = []
    for run in runs_in(text):
        try:
            rows += _measured(run, notes)
        except ValueError as error:
            notes.append(f"line {run.lines[0][0]}: {error}")
    if not rows and not notes:
        notes.append("no table of nccl-tests or rccl-tests in it")
    return ParsedLog(rows=tuple(rows), notes=tuple(notes))


def _measured(run: LogRun, notes: list[str]) -> list[Measured]:
    ranks, hosts = _places(run)
    name = _collective(run, ranks)
    _check_ranks(run, name, ranks)
    rows = []
    for number, cells in run.lines:
        for in_place, at in _halves(run):
            seconds = _seconds(run, cells, at)
            if isinstance(seconds, str):
                notes.append(f"line {number}: {seconds}")
            elif seconds:
                row = Measured(
                    collective=name,
                    gpu=run.devices[0].gpu,
                    ranks=ranks,
                    ranks_per_node=ranks // hosts,
                    nodes=hosts,
                    message_bytes=int(cells[run.columns.index("size")]),
                    in_place=in_place,
                    seconds=seconds,
                )
                rows.append(row)
    return rows


def _places(run: LogRun) -> tuple[int, int]:
    """Return the number of ranks and of hosts."""
    devices = run.devices
    if "cputime" in run.columns:
        raise ValueError("cputime (option -C) is the CPU's, not the collective's")
    if not devices:
        raise ValueError("the list of devices is missing, so the number of ranks is not known")
    if len({device.group for device in devices}) > 1:
        raise ValueError("several groups ran at once (NCCL_TESTS_SPLIT) and shared the links")
    if len({device.rank for device in devices}) < len(devices):
        raise ValueError(
            "rank 0 is listed twice: separate jobs of one rank, as from nccl-tests built without "
            "MPI; build it with MPI=1"
        )
    hosts = Counter(device.host for device in devices)
    if len(set(hosts.values())) > 1:
        raise ValueError(f"{len(devices)} ranks are spread unevenly over {len(hosts)} hosts")
    return len(devices), len(hosts)


def _check_ranks(run: LogRun, name: str, ranks: int) -> None:
    """Refuse a list of devices that was cut: bus over algorithm bandwidth tells how many ran."""
    ratios = []
    at = run.columns.index("algbw")
    for _, cells in run.lines:
        rate, bus = _number(cells[at]), _number(cells[at + 1])
        if rate and bus and rate > ROUNDED_GBPS:
            ratios.append((bus / rate, LAST_DIGIT_GBPS * (1 / rate + 1 / bus)))
    if not ratios:
        return
    # before 2020 all-gather and reduce-scatter printed a bus bandwidth without their own share
    shares = {_bus_share(name, ranks), 1.0 if name != "all_reduce" else _bus_share(name, ranks)}
    if median(min(abs(r - s) / error for s in shares) for r, error in ratios) > 1:
        ratio = median(r for r, _ in ratios)
        raise ValueError(
            f"bus over algorithm bandwidth is {ratio:.3g}, which {ranks} ranks do not give; is the "
            "list of devices whole?"
        )


def _bus_share(name: str, ranks: int) -> float:
    """Return bus over algorithm bandwidth (doc/PERFORMANCE.md). [1]"""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0}.get(name, share)


def _halves(run: LogRun) -> list[tuple[bool, int]]:
    """Return whether a half of the table is in place, and where its time stands."""
    times = [index for index, column in enumerate(run.columns) if column == "time"]
    order = (True, False) if run.in_place_first else (False, True)
    return list(zip(order, times, strict=False))


def _seconds(run: LogRun, cells: list[str], at: int) -> float | str:
    """Return a time, 0 where there is none, or what is wrong with it. [s]"""
    size = int(cells[run.columns.index("size")])
    time, rate = _number(cells[at]), _number(cells[at + 1])
    if not time or not size:
        return 0.0
    seconds = time * run.unit_seconds
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


def _collective(run: LogRun, ranks: int) -> str:
    if run.program is not None:
        if run.program not in COLLECTIVES:
            raise ValueError(f"{run.program}_perf is not modelled")
        return COLLECTIVES[run.program]
    found = {name for _, cells in run.lines if (name := _by_rates(run, cells, ranks))}
    if len(found) != 1:
        raise ValueError("neither a program's name nor the bandwidths tell which collective it is")
    return found.pop()


def _by_rates(run: LogRun, cells: list[str], ranks: int) -> str | None:
    """Tell a collective by bus over algorithm bandwidth and by whether it reduces.

    Between two ranks all-reduce and broadcast look alike.
    """
    at = run.columns.index("algbw")
    rate, bus = _number(cells[at]), _number(cells[at + 1])
    if ranks <= 2 or not rate or not bus or rate < ROUNDED_GBPS:  # noqa: PLR2004  # see above
        return None
    reduces = "redop" in run.columns and cells[run.columns.index("redop")] != "none"
    names = ("all_reduce", "reduce_scatter" if reduces else "all_gather", "broadcast")
    expected = {name: _bus_share(name, ranks) for name in names}
    name = min(expected, key=lambda each: abs(bus / rate / expected[each] - 1))
    return name if abs(bus / rate / expected[name] - 1) < SLACK else None
