"""A search on disk, line by line, so that one that was stopped goes on where it was."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from zeroplan import __version__
from zeroplan.errors import SpecError, UsageError
from zeroplan.rows import plain
from zeroplan.search.record import Choice
from zeroplan.search.select import Remembered
from zeroplan.search.space import Space

__all__ = ["Journal"]


class Journal:
    """What the structures of one search have, by their place.

    Raises
    ------
    SpecError
        The file is of another search, or no journal.
    UsageError
        It cannot be read or written.

    """

    def __init__(self, path: Path, space: Space, *others: object) -> None:
        self.path = path
        self.known: dict[int, Remembered] = {}
        head = {"zeroplan_version": __version__, "search": _fingerprint(space, others)}
        try:
            if path.is_file() and path.stat().st_size:
                self._read(path.read_text(encoding="utf-8"), head)
            else:
                path.write_text(f"{json.dumps(head)}\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--resume {path}: {error.strerror}.") from None

    def write(self, place: int, found: Remembered) -> None:
        """Add what a structure has."""
        line = json.dumps({"place": place, "found": plain(found)}, allow_nan=False)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise UsageError(f"--resume {self.path}: {error.strerror}.") from None

    def _read(self, text: str, head: dict[str, str]) -> None:
        first, *lines = text.split("\n")
        if first != json.dumps(head):
            raise SpecError(
                f"--resume {self.path}: it is not of this search (model, values, prices and version "
                "must be the same): name another file."
            )
        for line in lines[:-1]:  # what follows the last line's end was cut off
            entry = json.loads(line)
            self.known[entry["place"]] = _remembered(entry["found"])


def _remembered(found: dict[str, Any]) -> Remembered:
    lists = {
        name: tuple(Choice(**each) for each in found[name]) for name in ("choices", "near_misses")
    }
    return Remembered(**{**found, **lists})


def _fingerprint(space: Space, others: tuple[object, ...]) -> str:
    return sha256(repr((space, others)).encode()).hexdigest()
