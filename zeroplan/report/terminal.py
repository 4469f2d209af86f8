"""Tables and sentences as text, as wide as the terminal, and down a pipe without being cut.

Rich would do this in 40 ms, which is a quarter of what a whole `estimate` may take.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import takewhile, zip_longest
from textwrap import wrap
from typing import Final

from zeroplan.records import dataclass
from zeroplan.rows import Column, Table, text

__all__ = ["Page", "command_text", "page", "prose", "table_text"]

ENDLESS: Final = 10**6
"""Columns where nobody looks: words would be cut for no reason."""

PROSE_WIDTH: Final = 100

MOST_PARTS: Final = 3
"""Parts of a table, one below the other, that all have the words at the left. [count]"""

ROOMY: Final = 100
"""Columns from which tables get two spaces between columns instead of one."""

COLOURS: Final = {"fits": "32", "tight": "33", "does not fit": "31"}
"""ANSI codes of green, yellow and red; they repeat what the word says."""

BOLD: Final = "1"

INDENT: Final = 2
"""Of a command. [columns]"""


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


def command_text(command: str, on: Page) -> str:
    """Return a line for a shell, indented; where it is too long it goes on behind backslashes."""
    lines = [""]
    for words in re.split(r" (?=--)", shlex.join(shlex.split(command))):  # a flag keeps its value
        if lines[-1] and len(lines[-1]) + len(words) + INDENT + len(" \\ ") > on.width:
            lines.append("  ")
        lines[-1] += f" {words}" if lines[-1].strip() else words
    pad = " " * INDENT
    return pad + f" \\\n{pad}".join(lines) + "\n"


def table_text(table: Table, on: Page) -> str:
    """Return one table: numbers right and never cut, words left and folded where they must be.

    What is too wide even so goes on below, behind the words at the left again.
    """
    gap = 2 if on.width >= ROOMY else 1
    heads = [_head(column) for column in table.columns]
    rows = [[text(cell) for cell in row] for row in table.rows]
    widths = _widths(table.columns, heads, rows, on.width - gap * (len(heads) - 1))
    parts = [_styled(table.title, BOLD if on.coloured else None) + "\n"]
    for places in _parts(table.columns, widths, on.width, gap):
        columns = tuple(table.columns[place] for place in places)
        part_heads = [heads[place] for place in places]
        part_rows = [[row[place] for place in places] for row in rows]
        available = on.width - gap * (len(places) - 1)
        layout = _Layout(
            columns=columns,
            widths=_widths(columns, part_heads, part_rows, available),
            gap=" " * gap,
        )
        lines = layout.lines(part_heads, part_rows, coloured=on.coloured)
        parts.append("".join(f"{line}\n" for line in lines))
    return "\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    columns: tuple[Column, ...]
    widths: list[int]
    gap: str

    def lines(
        self, heads: list[list[str]], rows: list[list[str]], *, coloured: bool
    ) -> Iterator[str]:
        """Yield the lines of a table, without its title."""
        tall = max(map(len, heads))
        raised = ([""] * (tall - len(head)) + head for head in heads)
        for parts in zip(*raised, strict=True):
            yield self.line(parts, [None] * len(parts))
        yield "─" * (sum(self.widths) + len(self.gap) * (len(self.widths) - 1))
        for row in rows:
            yield from self.folded(row, coloured=coloured)

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
        folds = [_fold(cell, width) for cell, width in zip(cells, self.widths, strict=True)]
        for parts in zip_longest(*folds, fillvalue=""):
            yield self.line(parts, codes)


def _fold(cell: str, width: int) -> list[str]:
    """Return words in lines; one that is wider than its column is parted behind hyphens."""
    lines = [""]
    for word in cell.split():
        parts = [word] if len(word) <= width else re.findall(r"[^-]*-+|[^-]+", word)
        for place, part in enumerate(parts):
            longer = f"{lines[-1]} {part}" if lines[-1] and place == 0 else lines[-1] + part
            if len(longer) <= width or not lines[-1]:
                lines[-1] = longer
            else:
                lines.append(part)
    return lines


def _widths(
    columns: tuple[Column, ...], heads: list[list[str]], rows: list[list[str]], available: int
) -> list[int]:
    """Return the width of each column; words give way, down to their longest one, then to hyphens."""
    stacks = [[*head, *cells] for head, *cells in zip(heads, *rows, strict=True)]
    widths = [max(map(len, stack)) for stack in stacks]
    for unbroken in (r"\S+", r"[^\s-]+-?"):
        for index, column in enumerate(columns):
            if column.is_text:
                words = (word for entry in stacks[index] for word in re.findall(unbroken, entry))
                longest = max(map(len, words), default=0)
                missing = max(0, sum(widths) - available)
                widths[index] = max(longest, widths[index] - missing)
    return widths


def _parts(
    columns: tuple[Column, ...], widths: list[int], available: int, gap: int
) -> list[list[int]]:
    """Divide columns into parts no wider than the page, each with the words at the left.

    Where these leave too little room only the first of them stand in every part, as many as make
    the fewest parts.
    """
    words = sum(1 for _ in takewhile(lambda column: column.is_text, columns))
    everything = list(range(len(columns)))

    def parts_behind(kept: int) -> list[list[int]]:
        others = everything[kept:]
        for several in range(1, len(others) + 1):
            size = -(-len(others) // several)
            starts = range(0, len(others), size)
            parts = [everything[:kept] + others[at : at + size] for at in starts]
            if all(sum(widths[each] + gap for each in part) - gap <= available for part in parts):
                return parts
        return []

    behind = range(words, 0, -1) or range(1)
    possible = [parts for kept in behind if (parts := parts_behind(kept))]
    if possible and len(possible[0]) > MOST_PARTS:
        return min(possible, key=len)
    return possible[0] if possible else [everything]


def _head(column: Column) -> list[str]:
    """Return a column's head in lines as short as its words allow."""
    name = column.name.replace("-\u00ad", "\u00ad").replace("\u00ad", "- ")
    return [*name.split(), f"[{column.unit}]"] if column.unit else name.split()


def _styled(words: str, code: str | None) -> str:
    return words if code is None else f"\x1b[{code}m{words}\x1b[0m"
