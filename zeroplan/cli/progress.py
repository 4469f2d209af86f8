"""How far a long command is, on one line of standard error."""

import sys
import time
from collections.abc import Callable
from typing import Final

__all__ = ["counted"]

SILENT_SECONDS: Final = 1.0
"""Progress is shown after this. [s]"""


def counted(things: str) -> Callable[[int, int], None] | None:
    """Return what shows how many are done, once it has taken a while; None where nobody looks."""
    if not sys.stderr.isatty():
        return None
    start = time.monotonic()

    def show(done: int, total: int) -> None:
        if time.monotonic() - start > SILENT_SECONDS:
            erase = "\r\x1b[K" if done == total else ""
            sys.stderr.write(f"\r{done:,} of {total:,} {things}{erase}")
            sys.stderr.flush()

    return show
