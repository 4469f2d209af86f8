"""Tables and sentences as text, as wide as the terminal, and down a pipe without being cut.

Rich would do this in 40 ms, which is a quarter of what a whole `estimate` may take.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from textwrap import wrap
from typing import Final

from zeroplan.records import dataclass
from zeroplan.rows import Column, Table, text

__all__ = ["Page", "page", "prose", "table_text"]

ENDLESS: Final = 10**6
"""Columns where nobody looks: words would be cut for no reason."""

PROSE_WIDTH: Final = 100

ROOMY: Final = 100
"""Columns from which tables get two spaces between columns instead of one."""

COLOURS: Final = {"fits": "32", "tight": "33", "does not fit": "31"}
"""ANSI codes of green, yellow and red; they repeat what the word says."""

BOLD: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What an answer is printed on."""

    width: int
    """[columns]"""
    coloured: bool = False


def page(*, wide: bool = False) -> Page:
    """Return the page that standard output is; `wide` lets lines be longer than it."""
    shown = sys.stdout.isatty()
    measured = shown or "COLUMNS" in os.environ
    coloured = (shown or bool(os.environ.get("FORCE_COLOR"))) and not os.environ.get("NO_COLOR")
    return Page(
        width=shutil.get_terminal_size().columns if measured and not wide else ENDLESS,
        coloured=coloured,
    )


def prose(lines: Iterable[str], on: Page) -> str:
    """Return sentences wrapped at a width that is easy to read."""
    width = min(on.width, PROSE_WIDTH)
    folded = (
        wrap(line, width, subsequent_indent="  " if line.startswith("- ") else "") for line in lines
    )
    return "".join(f"{part}\n" for parts in folded for part in parts)


def table_text(table: Table, on: Page) -> str:
    """Return one table: numbers right and never cut, words left and folded where they must be."""
    gap = 2 if on.width >= ROOMY else 1
    heads = [_head(column) for column in table.columns]
    rows = [[text(cell) for cell in row] for row in table.rows]
    widths = _widths(table.columns, heads, rows, on.width - gap * (len(heads) - 1))
    tall = max(map(len, heads))
    raised = ([""] * (tall - len(head)) + head for head in heads)
    layout = _Layout(columns=table.columns, widths=widths, gap=" " * gap)
    lines = (
        _styled(table.title, BOLD if on.coloured else None),
        "",
        *(layout.line(parts, [None] * len(parts)) for parts in zip(*raised, strict=True)),
        "─" * (sum(widths) + gap * (len(widths) - 1)),
        *(line for row in rows for line in layout.folded(row, coloured=on.coloured)),
    )
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    columns: tuple[Column, ...]
    widths: list[int]
    gap: str

    def line(self, cells: Iterable[str], codes: Iterable[str | None]) -> str:
        """Return one line of text: every cell padded to its column, and coloured."""
        padded = (
            _styled(cell.ljust(width) if column.is_text else cell.rjust(width), code)
            for cell, width, column, code in zip(
                cells, self.widths, self.columns, codes, strict=True
            )
        )
        return self.gap.join(padded).rstrip()

    def folded(self, cells: list[str], *, coloured: bool) -> Iterator[str]:
        """Yield the lines of one row, as many as its longest words need."""
        codes = [COLOURS.get(cell) if coloured else None for cell in cells]
        folds = [wrap(cell, width) for cell, width in zip(cells, self.widths, strict=True)]
        for parts in zip_longest(*folds, fillvalue=""):
            yield self.line(parts, codes)


def _widths(
    columns: tuple[Column, ...], heads: list[list[str]], rows: list[list[str]], available: int
) -> list[int]:
    """Return the width of each column; words give way, down to their longest one."""
    stacks = [[*head, *cells] for head, *cells in zip(heads, *rows, strict=True)]
    widths = [max(map(len, stack)) for stack in stacks]
    for index, column in enumerate(columns):
        if column.is_text:
            longest = max(len(word) for entry in stacks[index] for word in entry.split() or [""])
            missing = max(0, sum(widths) - available)
            widths[index] = max(longest, widths[index] - missing)
    return widths


def _head(column: Column) -> list[str]:
    """Return a column's head in lines as short as its words allow."""
    name = column.name.replace("-\u00ad", "\u00ad").replace("\u00ad", "- ")
    return [*name.split(), f"[{column.unit}]"] if column.unit else name.split()


def _styled(words: str, code: str | None) -> str:
    return words if code is None else f"\x1b[{code}m{words}\x1b[0m"
