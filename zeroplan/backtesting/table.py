"""A stranger's CSV as rows of text, and the cells of one row."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from zeroplan.errors import SpecError, perhaps

__all__ = ["Cells", "read_table"]

BLANK: Final = ""


class Cells:
    """The cells of one row, by column; it remembers which blanks got a default."""

    def __init__(self, row: dict[str, str], line: int) -> None:
        self.row = row
        self.line = line
        self.filled: list[str] = []

    def text(self, column: str) -> str:
        """Return a cell without the spaces around it; blank where there is no such column."""
        return self.row.get(column, BLANK).strip()

    @property
    def id(self) -> str:
        """How the row is named: its id, else its line in the file."""
        return self.text("id") or f"line {self.line}"

    def whole(self, column: str) -> int:
        """Return a count of 1 or more, which cannot be blank."""
        text = self.text(column)
        if not text:
            raise SpecError(f"{column} is blank")
        if not text.isdecimal() or not int(text):
            raise SpecError(f"{column} = {text!r} is not a whole number of 1 or more")
        return int(text)

    def positive(self, column: str) -> float | None:
        """Return a number above 0, or None for a blank."""
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise SpecError(f"{column} = {text!r} is not a number above 0")
        return value


def read_table(path: Path, required: Iterable[str]) -> list[Cells]:
    """Return the rows of a CSV whose first line names its columns.

    Raises
    ------
    SpecError
        There is no such file, it is no CSV, or a required column is missing.

    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restval=BLANK)
            columns = list(reader.fieldnames or ())
            rows = [Cells(row, reader.line_num) for row in reader]
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}; give the path of a table (.csv).") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path}: not a CSV in UTF-8: {error}.") from None
    for column in required:
        if column not in columns:
            raise SpecError(f"{path}: no column {column!r}.{perhaps(column, columns)}")
    return rows
