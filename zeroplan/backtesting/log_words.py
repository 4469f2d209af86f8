"""What a person is told of a training log: what was read of it, left out and not understood."""

from collections.abc import Iterator, Sequence
from statistics import median, quantiles
from typing import Final

from zeroplan.backtesting.logs import Kind, Log, Reading
from zeroplan.rows import significant
from zeroplan.units import GIB

__all__ = ["memory_words", "step_words", "token_words", "unread_words"]

FORGIVEN: Final = 0.01
"""By how much the tokens of a step may differ from the run's, as those of a last batch do. [1]"""

MOST_UNREAD: Final = 3
"""Places of unread reports that are named."""


def step_words(log: Log, seconds: Sequence[float], left_out: str) -> Iterator[str]:
    """Tell the time of a step and its spread."""
    if not seconds:
        yield f"{log.trainer} log without the time of a step; {left_out}"
    elif len(seconds) == 1:
        yield f"{log.trainer} log: step of {_shown(seconds[0])} s, from one reading; {left_out}"
    else:
        low, _, high = quantiles(seconds, n=4, method="inclusive")
        yield (
            f"{log.trainer} log: step of {_shown(median(seconds))} s, the median of {len(seconds):,} "
            f"readings, half of them {_shown(low)} to {_shown(high)} s; {left_out}"
        )


def memory_words(kind: Kind | None, peak: float, readings: Sequence[Reading]) -> Iterator[str]:
    """Tell the peak and what it counts."""
    if kind is None:
        yield "no peak of memory in it"
        return
    others = {other for each in readings for other in each.peaks} - {kind}
    beside = f", beside {' and '.join(sorted(others))}, which the row has no room for"
    yield f"peak of {significant(peak / GIB, 4)} GiB {kind}{beside if others else ''}"


def token_words(log: Log, asked: int) -> Iterator[str]:
    """Say that the tokens of a step are not those of the run, where they are told."""
    seen = log.tokens_per_step
    if seen is not None and abs(seen / asked - 1) > FORGIVEN:
        yield (
            f"the log tells {seen:,.0f} tokens a step and the run {asked:,}: another batch, or "
            "sequences that are not full"
        )


def unread_words(unread: Sequence[str]) -> Iterator[str]:
    """Name the places of what could not be read."""
    yield from (f"not read: {each}" for each in unread[:MOST_UNREAD])
    if len(unread) > MOST_UNREAD:
        yield f"not read: {len(unread) - MOST_UNREAD:,} more"


def _shown(seconds: float) -> str:
    return significant(seconds, 4)
