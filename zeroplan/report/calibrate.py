"""A new profile for a person: what is in it, how far off it is, and what stayed as it was."""

from zeroplan.calibration import Calibration, NodeProfile, RecordsCalibration
from zeroplan.report.backtest import skipped_rows
from zeroplan.report.terminal import Page, prose, table_text

__all__ = ["calibration_text"]


def calibration_text(result: Calibration | NodeProfile | RecordsCalibration, on: Page) -> str:
    """Return the answer as tables and remarks."""
    tables = (table_text(table, on) for table in result.to_tables())
    skipped = skipped_rows(result.skipped) if isinstance(result, Calibration) else ()
    return "\n".join((*tables, prose((*result.remarks(), *skipped), on)))
