"""What a training log says of its steps, whichever trainer wrote it."""

import re
from collections.abc import Mapping
from typing import Final, Literal

from zeroplan.records import dataclass

__all__ = ["LEAST", "MOST", "NUMBER", "STEP", "Kind", "Log", "Measure", "Reading", "number"]

Measure = Literal[
    "step_seconds", "tokens_per_second_per_gpu", "tokens_per_second", "samples_per_second"
]
"""What a trainer counts; tokens and samples are of all GPUs unless the name says otherwise."""

Kind = Literal["allocated", "active", "reserved"]
"""What a peak counts, in the words of the table of runs."""

NUMBER: Final = r"[-+]?(?:nan|inf|\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?)"
"""A number as trainers print it, in a pattern that does not look at case."""

STEP: Final = r"\d{1,15}"
"""The number of a step, in a pattern."""

LEAST: Final = 1e-9
MOST: Final = 1e18
"""No rate, time or number of bytes of a step is beyond these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a trainer reported at one time."""

    place: str
    """Where it stands: line 12, log_history[3]."""
    step: int
    """The last optimizer step that it covers, from 1."""
    speed: float | None
    """In the log's measure; None where only memory is told."""
    peaks: Mapping[Kind, float]
    """Peaks of memory by kind. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A training log, read."""

    trainer: str
    measure: Measure
    readings: tuple[Reading, ...]
    """In the order of the file."""
    unread: tuple[str, ...] = ()
    """What looks like a report and could not be read: its place and why."""
    remarks: tuple[str, ...] = ()
    """What the figures include or leave open, in words."""
    micro_steps: bool = False
    """Whether steps are counted, and may be timed, by the micro-step."""
    micro_batch_size: int | None = None
    """Sequences per GPU and micro-step, where the log tells. [count]"""
    tokens_per_step: float | None = None
    """Of all GPUs, where the log tells. [tokens]"""


def number(text: str) -> float | None:
    """Return a figure as trainers print it (1,234), None where it cannot be one."""
    try:
        value = float(re.sub(r"(?<=\d),(?=\d{3})", "", text))
    except ValueError:
        return None
    return value if LEAST < value < MOST else None
