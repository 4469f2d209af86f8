"""A calibration for a person: the constants, how far off they are, and what stayed as it was."""

from collections.abc import Iterator

from zeroplan.calibration.record import Calibration
from zeroplan.report.backtest import skipped_rows
from zeroplan.report.terminal import Page, prose, table_text

__all__ = ["calibration_text"]

LEGEND = (
    "A held-out point is predicted by a fit that did not see its source, or, where too little is "
    "left without the source, its file."
)


def calibration_text(result: Calibration, on: Page) -> str:
    """Return the answer as tables and remarks."""
    tables = (table_text(table, on) for table in result.to_tables())
    return "\n".join((*tables, prose(tuple(_remarks(result)), on)))


def _remarks(result: Calibration) -> Iterator[str]:
    yield LEGEND
    if result.held_out.sources:
        yield f"Held out whole: {', '.join(result.held_out.sources)}"
    if result.held_out.by_file:
        yield f"Held out file by file: {', '.join(result.held_out.by_file)}"
    if result.held_out.collectives:
        yield f"Predicted only: {', '.join(result.held_out.collectives)}"
    if result.held_out.missing:
        yield f"Not held out, as too little is left: {', '.join(result.held_out.missing)}"
    if result.kept:
        yield "Constants that stay as they were:"
        yield from (f"- {key}: {why}" for key, why in result.kept.items())
    yield from skipped_rows(result.skipped)
