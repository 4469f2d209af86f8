"""How far a long command is, on one line of standard error that goes away when it is done."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from zeroplan.rows import significant

__all__ = ["Line", "is_watched", "working"]

SILENT_SECONDS: Final = 1.0
"""Progress is shown after this. [s]"""

PAUSE_SECONDS: Final = 0.25
"""Between two looks at the clock. [s]"""

ERASE: Final = "\r\x1b[K"
"""Takes away the line that a terminal shows."""


class Line:
    """What is being done, how much of it, and for how long.

    Parameters
    ----------
    doing
        Begins the line.
    things
        What is counted, if anything is.
    screen
        Where the line is shown.
    clock
        Returns a time. [s]

    """

    def __init__(
        self, doing: str, things: str, screen: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._doing, self._things = doing, things
        self._screen, self._clock = screen, clock
        self._start = clock()
        self._done: tuple[int, int] | None = None
        self._shown = ""

    def count(self, done: int, total: int) -> None:
        """Remember how many things of how many are done."""
        self._done = (done, total)

    def show(self) -> None:
        """Show the line where it has taken a while, if it says something new."""
        seconds = self._clock() - self._start
        text = self._text(seconds)
        if seconds > SILENT_SECONDS and text != self._shown:
            self._screen.write(f"{ERASE}{text}")
            self._screen.flush()
            self._shown = text

    def erase(self) -> None:
        """Take the line away."""
        if self._shown:
            self._screen.write(ERASE)
            self._screen.flush()
            self._shown = ""

    def _text(self, seconds: float) -> str:
        if self._done is None:
            return f"{self._doing}, {seconds:.0f} s"
        done, total = self._done
        rate = done / seconds if seconds > 0 else 0.0
        return f"{self._doing}: {done:,} of {total:,} {self._things}, {significant(rate)} a second"


@contextmanager
def working(
    doing: str, things: str = "", *, quiet: bool = False
) -> Iterator[Callable[[int, int], None] | None]:
    """Show a line while something takes more than a second; nothing where nobody looks.

    Parameters
    ----------
    doing
        What is done, as the line begins.
    things
        What is counted by calls of the function that is given, which is None where nobody looks.
    quiet
        Whether nothing is to be shown.

    """
    if quiet or not is_watched():
        yield None
        return
    from threading import Event, Thread  # noqa: PLC0415  # not where nobody looks

    line, ended = Line(doing, things, sys.stderr), Event()

    def look() -> None:
        line.show()
        while not ended.wait(PAUSE_SECONDS):
            line.show()

    looking = Thread(target=look, daemon=True)
    looking.start()
    try:
        yield line.count
    finally:
        ended.set()
        looking.join()
        line.erase()


def is_watched() -> bool:
    """Whether standard error is a terminal that a person looks at, not the log of a CI job."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
