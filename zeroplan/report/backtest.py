"""A backtest for a person: errors by group, the overall figure, what was skipped and why."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from zeroplan.backtesting.record import Backtest, Skip
from zeroplan.report.terminal import Page, prose, table_text
from zeroplan.rows import significant

__all__ = ["backtest_text", "overall_words", "skipped_rows"]

MOST_REASONS: Final = 12
"""Reasons that are listed; a table can have one of its own for every row."""

LEGEND: Final = (
    "An error is predicted / measured - 1. Overall is the median over the groups of their median "
    "|error|, so that a large table counts no more than a small one."
)


def backtest_text(result: Backtest, on: Page) -> str:
    """Return the summary as a table and what it leaves out."""
    skipped = tuple(skipped_rows(result.skipped))
    return "\n".join(
        (
            table_text(result.to_table(), on),
            prose((LEGEND,), on),
            *((prose(skipped, on),) if skipped else ()),
        )
    )


def overall_words(result: Backtest) -> str:
    """Return the overall figures in one line."""
    figures = (
        f"{metric.replace('_', ' ')} {significant(error * 100)} %"
        for metric, error in result.overall.items()
    )
    return ", ".join(figures) or "nothing was predicted"


def skipped_rows(skipped: Sequence[Skip]) -> Iterator[str]:
    """Count the rows that were skipped, by their reasons, the most frequent ones first."""
    if not skipped:
        return
    reasons = Counter(skip.why for skip in skipped).most_common()
    yield f"Skipped rows: {len(skipped):,}"
    yield from (f"- {rows:,}: {why}" for why, rows in reasons[:MOST_REASONS])
    others = sum(rows for _, rows in reasons[MOST_REASONS:])
    if others:
        yield f"- {others:,}: for other reasons, which --json tells row by row"
