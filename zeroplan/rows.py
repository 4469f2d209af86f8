"""What a result lists about itself: plain values, small tables, and the HTML and frame of them."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from zeroplan.records import dataclass, fields, is_dataclass
from zeroplan.units import SCALES

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Cell",
    "Column",
    "Table",
    "csv_text",
    "frame",
    "html",
    "leaves",
    "marked",
    "plain",
    "readable",
    "significant",
    "text",
]

_WORDS: Final = ' class="words"'
"""Marks columns of words in HTML, for style sheets."""

Cell = str | float | None
"""A word, a number, or nothing known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The head of a column."""

    name: str
    """Long words carry soft hyphens, where a narrow view may break them."""
    unit: str = ""
    is_text: bool = False
    """Words stand left, numbers right."""

    @property
    def title(self) -> str:
        """Name and unit in one line."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under a title, before any view of it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def csv_text(lines: Sequence[Mapping[str, object]]) -> str:
    """Return lines as CSV, with every name that one of them has at the head of a column."""
    import csv  # noqa: PLC0415  # not for a table on a terminal

    text = io.StringIO()
    heads = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def significant(value: float, digits: int = 3) -> str:
    """Return a number rounded to significant digits, thousands separated, never in powers of ten."""
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = digits - 1 - exponent
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def text(cell: Cell) -> str:
    """Return a cell as a person reads it."""
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else significant(cell)


def readable(value: float, unit: str) -> str:
    """Return a figure in SI base units as a person reads it."""
    scale, word = SCALES.get(unit, (1, unit))
    return f"{significant(value / scale)} {word}".rstrip()


def plain(value: Any) -> Any:
    """Return records as dicts and tuples as lists, all the way down, in the order of the fields."""
    if is_dataclass(value):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def html(table: Table) -> str:
    """Return a table as HTML without colours of its own, so that dark themes work."""
    from html import escape  # noqa: PLC0415  # loads a table of all entities

    head = "".join(
        f'<th scope="col"{_WORDS * column.is_text}>{escape(_broken(column.title))}</th>'
        for column in table.columns
    )
    body = "".join(f"<tr>{''.join(_cells(table.columns, row))}</tr>" for row in table.rows)
    return (
        f"<table><caption>{escape(table.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def marked(words: str) -> str:
    """Return words as HTML; what stands between backticks is code."""
    import re  # noqa: PLC0415  # no answer in text needs them
    from html import escape  # noqa: PLC0415

    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def _broken(title: str) -> str:
    """Return a head without the soft hyphens that follow a hyphen, where browsers break anyway."""
    return title.replace("-\u00ad", "-")


def _cells(columns: tuple[Column, ...], row: tuple[Cell, ...]) -> Iterator[str]:
    """Yield the cells of a row; words that come first name it."""
    for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
        shown = marked(text(cell))
        if column.is_text and place == 0:
            yield f'<th scope="row">{shown}</th>'
        else:
            yield f"<td{_WORDS * column.is_text}>{shown}</td>"


def frame(records: Iterable[Mapping[str, object]], index: str) -> "pd.DataFrame":
    """Return nested records as a frame of one row each; lists inside a record are left out."""
    import pandas as pd  # noqa: PLC0415  # half a second that only this caller pays

    return pd.DataFrame([dict(leaves(record)) for record in records]).set_index(index)


def leaves(record: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Yield the values of nested records by dotted name; lists are left out."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value
