"""torchtitan's console log: one line per report, of the steps since the last one.

`torchtitan/components/metrics.py` (up to 0.1 `torchtitan/metrics.py`), `MetricsProcessor.log`: `tps`,
in the first versions `wps`, is tokens per second and GPU; `memory` is the peak of reserved bytes
since the last report, in GiB.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from zeroplan.backtesting.logs.reading import NUMBER, STEP, Kind, Log, Reading, number
from zeroplan.units import GIB

__all__ = ["read_torchtitan"]

REPORT: Final = re.compile(rf"(?<!validate )\bstep: *({STEP}) .*\bloss: ")
"""A report of training; one of validation is as fast as a forward."""
RATE: Final = re.compile(rf"\b[tw]ps: *({NUMBER})", re.IGNORECASE)
MEMORY: Final = re.compile(rf"\bmemory: *({NUMBER})GiB", re.IGNORECASE)


def read_torchtitan(lines: Iterable[tuple[int, str]]) -> Log:
    """Read numbered lines of a log; ranks may be mixed."""
    readings: list[Reading] = []
    unread: list[str] = []
    for place, line in lines:
        step = REPORT.search(line)
        if step is None:
            continue
        rate = RATE.search(line)
        speed = number(rate[1]) if rate else None
        if speed is None:
            told = (
                f"{rate[0]!r} is no rate" if rate else "no tps stands on it, which may be cut off"
            )
            unread.append(f"line {place}: {told}")
            continue
        readings.append(
            Reading(place=f"line {place}", step=int(step[1]), speed=speed, peaks=_peaks(line))
        )
    return Log(
        trainer="torchtitan",
        measure="tokens_per_second_per_gpu",
        readings=tuple(readings),
        unread=tuple(unread),
    )


def _peaks(line: str) -> Mapping[Kind, float]:
    """Return the peak, where there is one: without a GPU it is 0."""
    found = MEMORY.search(line)
    gib = number(found[1]) if found else None
    return {} if gib is None else {"reserved": gib * GIB}
