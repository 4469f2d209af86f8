"""Answers on the terminal, and down a pipe without being cut."""

import os
import sys
from collections.abc import Iterable
from typing import Final, Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from zeroplan.estimation.record import Estimate
from zeroplan.estimation.tables import memory_table, time_table
from zeroplan.report.words import assumptions, defaults, verdicts
from zeroplan.rows import Column, Table, text
from zeroplan.spec.run import Run

__all__ = ["console", "show", "show_table"]

PIPED_WIDTH: Final = 240
"""Columns where nobody looks: rich would assume 80 and cut words short."""

PROSE_WIDTH: Final = 100

ROOMY: Final = 100
"""Columns from which tables get two spaces between columns instead of one."""

STYLES: Final = {"fits": "green", "tight": "yellow", "does not fit": "red"}
"""Colours repeat what the word says."""

LEGEND: Final = "States are what a GPU owns; activations and buffers are those at the peak."


def console(*, wide: bool = False) -> Console:
    """Return a console for standard output, wide on request and where it is not a terminal."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if piped or wide else None, highlight=False)


def show(answer: Estimate, asked: Run, *, wide: bool = False) -> None:
    """Print both tables and what they mean."""
    out = console(wide=wide)
    show_table(memory_table(answer, wide=wide), out)
    show_table(time_table(answer, wide=wide), out)
    _show_lines((*verdicts(answer), LEGEND), out)
    for title, lines in (
        ("Notes", answer.notes),
        ("Defaults chosen", tuple(defaults(answer, asked))),
        ("Assumptions", tuple(assumptions(answer))),
    ):
        if lines:
            out.print(f"\n{title}", style="bold")
            _show_lines(lines, out)


def show_table(table: Table, out: Console) -> None:
    """Print one table: numbers right and never cut, words left."""
    view = RichTable(
        title=table.title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, int(out.width >= ROOMY), 0, 0),
        pad_edge=False,
    )
    for column in table.columns:
        justify: Literal["left", "right"] = "left" if column.is_text else "right"
        view.add_column(_head(column), justify=justify, no_wrap=not column.is_text)
    for row in table.rows:
        view.add_row(*(Text(text(cell), style=STYLES.get(text(cell), "")) for cell in row))
    out.print(view)


def _head(column: Column) -> Text:
    """Return a column's head in lines as short as its words allow."""
    name = column.name.replace("-\u00ad", "-\n").replace("\u00ad", "-\n").replace(" ", "\n")
    return Text(f"{name}\n[{column.unit}]" if column.unit else name)


def _show_lines(lines: Iterable[str], out: Console) -> None:
    for line in lines:
        out.print(Text(line), width=min(out.width, PROSE_WIDTH))
