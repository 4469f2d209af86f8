"""A search on disk, line by line, so that one that was stopped goes on where it was."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from zeroplan import __version__
from zeroplan.errors import SpecError, UsageError
from zeroplan.rows import plain
from zeroplan.search.record import Choice
from zeroplan.search.select import Remembered
from zeroplan.search.space import Space

__all__ = ["Journal"]

SHOWN: Final = 40
"""How much of a damaged line is told. [B]"""


class Journal:
    """What the structures of one search have, by their place; each line begins with its digest.

    Raises
    ------
    SpecError
        The file is of another search, no journal, or damaged.
    UsageError
        It cannot be read or written.

    """

    def __init__(self, path: Path, space: Space, *others: object) -> None:
        self.path = path
        self.known: dict[int, Remembered] = {}
        search = _digest(repr((space, others)).encode())
        self._head = json.dumps({"zeroplan_version": __version__, "search": search}).encode()
        try:
            if path.is_file() and path.stat().st_size:
                self._read(path.read_bytes())
            else:
                path.write_bytes(self._head + b"\n")
        except OSError as error:
            raise UsageError(f"--resume {path}: {error.strerror}.") from None

    def write(self, place: int, found: Remembered) -> None:
        """Add what a structure has."""
        text = json.dumps({"place": place, "found": plain(found)}, allow_nan=False).encode()
        try:
            with self.path.open("ab") as file:
                file.write(b"%b %b\n" % (self._seal(text), text))
        except OSError as error:
            raise UsageError(f"--resume {self.path}: {error.strerror}.") from None

    def _read(self, written: bytes) -> None:
        first, *lines = written.split(b"\n")
        if first != self._head or not lines:
            raise SpecError(
                f"--resume {self.path}: it is not of this search (model, values, prices and version "
                "must be the same, and whether the fewest GPUs are looked for): name another file."
            )
        cut_off = lines.pop()
        if cut_off:
            os.truncate(self.path, len(written) - len(cut_off))
        for number, line in enumerate(lines, 2):
            seal, _, text = line.partition(b" ")
            if seal != self._seal(text):
                raise SpecError(
                    f"--resume {self.path}, line {number}: {line[:SHOWN]!r} is damaged: take the "
                    "line out, and what it had is searched again, or name another file."
                )
            entry = json.loads(text)
            self.known[entry["place"]] = _remembered(entry["found"])

    def _seal(self, text: bytes) -> bytes:
        """Return the digest of a line in this journal."""
        return _digest(self._head + text).encode()


def _remembered(found: dict[str, Any]) -> Remembered:
    lists = {
        name: tuple(Choice(**each) for each in found[name]) for name in ("choices", "near_misses")
    }
    return Remembered(**{**found, **lists})


def _digest(of: bytes) -> str:
    return sha256(of).hexdigest()
