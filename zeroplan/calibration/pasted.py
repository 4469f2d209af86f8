"""Terminal output as people paste it: colours, container runtimes' envelopes, folded lines."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

__all__ = ["pasted_lines"]

ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ENVELOPE: Final = re.compile(r'^\{"log":')
"""A line of a container's log file, as Docker writes it."""


def pasted_lines(
    text: str, folded_at: Callable[[str, str], bool] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with the number at which each begins, as a program wrote them.

    Parameters
    ----------
    text
        What was pasted.
    folded_at
        Whether a line goes on in the next. Where one does, the text came from a terminal as wide
        as that line, and so do all lines of that width.

    """
    lines = [ESCAPES.sub("", _bare(line)) for line in text.splitlines()]
    width = _width(lines, folded_at) if folded_at is not None else 0
    start, whole = 1, ""
    for number, line in enumerate(lines, start=1):
        whole += line
        if width and len(line) == width:
            continue
        yield start, whole
        start, whole = number + 1, ""
    if whole:
        yield start, whole


def _bare(line: str) -> str:
    """Return what a container wrote to a line of its log file."""
    if not ENVELOPE.match(line):
        return line
    try:
        return str(json.loads(line)["log"]).rstrip("\r\n")
    except ValueError:  # cut off
        return line


def _width(lines: list[str], folded_at: Callable[[str, str], bool]) -> int:
    """Return the width at which lines were folded; 0 where none was."""
    return next((len(line) for line, rest in pairwise(lines) if folded_at(line, rest)), 0)
