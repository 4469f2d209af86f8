"""Composer's console log, which is llm-foundry's: a head with the batch, then a metric a line.

`composer/loggers/console_logger.py` writes it; the metrics are those of
`composer/callbacks/speed_monitor.py` (means over a window of batches) and `memory_monitor.py` (peaks
since the process began, in GB of 10^9 bytes; in early versions in bytes).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from zeroplan.backtesting.logs.reading import NUMBER, STEP, Kind, Log, Measure, Reading, number
from zeroplan.units import GB

__all__ = ["read_composer"]

HEAD: Final = re.compile(rf"\[batch=({STEP})(?:/\d+)?\]:?\s*$")
OTHER_HEAD: Final = re.compile(r"\[(?:token|sample|epoch|iteration|second)=\d+(?:/\d+)?\]:?\s*$")
"""Of a run whose length is not told in batches; `time/batch` tells the batch then."""
METRIC: Final = re.compile(rf"\bTrain ([\w./-]+): ({NUMBER})\s*$", re.IGNORECASE)
SPEEDS: Final[dict[str, Measure]] = {
    "throughput/device/tokens_per_sec": "tokens_per_second_per_gpu",
    "throughput/tokens_per_sec": "tokens_per_second",
    "throughput/samples_per_sec": "samples_per_second",
}
"""The first that the log has is read."""
PEAKS: Final[dict[str, Kind]] = {
    "memory/peak_allocated_mem": "allocated",
    "memory/peak_active_mem": "active",
    "memory/peak_reserved_mem": "reserved",
}
BYTES_FROM: Final = 1e5
"""No GPU has as many GB: such a figure is in bytes."""


def read_composer(lines: Iterable[tuple[int, str]]) -> Log:
    """Read numbered lines of a log."""
    reports = list(_reports(lines))
    key = next((key for key in SPEEDS if any(key in each for _, _, each in reports)), "")
    readings = [
        Reading(
            place=f"line {place}",
            step=step,
            speed=number(found.get(key, "")),
            peaks=_peaks(found),
        )
        for place, step, found in reports
    ]
    return Log(
        trainer="Composer",
        measure=SPEEDS.get(key, "tokens_per_second_per_gpu"),
        readings=tuple(each for each in readings if each.speed or each.peaks),
        unread=tuple(
            f"line {place}: {key} = {found[key]}"
            for place, _, found in reports
            if key in found and number(found[key]) is None
        ),
    )


def _reports(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, Mapping[str, str]]]:
    """Yield line, batch and metrics of each report."""
    place, batch, found = 0, 0, dict[str, str]()
    for at, line in lines:
        head = HEAD.search(line) or OTHER_HEAD.search(line)
        if head is not None:
            if found:
                yield place, batch, found
            place, found = at, {}
            batch = int(head[1]) if head.re is HEAD else batch + 1
        metric = METRIC.search(line)
        if metric is not None:
            found[metric[1]] = metric[2]
            if metric[1] == "time/batch" and re.fullmatch(STEP, metric[2]):
                batch = max(batch, int(metric[2]))
    if found:
        yield place, batch, found


def _peaks(found: Mapping[str, str]) -> dict[Kind, float]:
    told = {kind: number(found.get(key, "")) for key, kind in PEAKS.items()}
    return {
        kind: value if value > BYTES_FROM else value * GB for kind, value in told.items() if value
    }
