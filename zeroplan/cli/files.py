"""Files that a command writes."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from zeroplan.errors import UsageError

__all__ = ["refuse_unwritable", "write_by", "write_whole"]


def refuse_unwritable(path: Path, option: str) -> None:
    """Say so before hours are spent on what a file is to hold, where it cannot be written."""
    try:
        fault = _fault(path)
    except OSError as error:
        fault = error.strerror
    if fault:
        raise UsageError(f"{option} {path}: {fault}.")


def write_whole(path: Path, text: str, option: str) -> None:
    """Write a file whole or not at all; its folder is made, and that is said."""
    write_by(path, lambda part: part.write_text(text, encoding="utf-8"), option)


def write_by(path: Path, write: Callable[[Path], object], option: str) -> None:
    """Let a file be written under another name first, which it keeps only if that goes well.

    A device or a pipe is written as it is: the other name would take its place.
    """
    made = "" if path.parent.exists() else f"made the folder {path.parent}\n"
    straight = False
    try:
        straight = _is_special(path)
        if straight:
            write(path)
        else:
            _write_aside(_linked(path), write)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}.") from None
    except KeyboardInterrupt:
        left = "what was written is not whole" if straight else "nothing was written"
        sys.stderr.write(f"zeroplan: interrupted: {option} {path}: {left}.\n")
        raise
    sys.stderr.write(f"{made}wrote {path}\n")


def _write_aside(path: Path, write: Callable[[Path], object]) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        part.replace(path)
    finally:
        with suppress(OSError):  # where no folder could be made there is nothing to take away
            part.unlink(missing_ok=True)


def _fault(path: Path) -> str | None:
    """Say why a path cannot be written; None where it can."""
    if path.is_dir():
        return "is a folder; name a file"
    if _is_special(path):
        return None if os.access(path, os.W_OK) else "cannot be written"
    folder = _linked(path).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return f"nothing can be written in {folder}"
    return None


def _is_special(path: Path) -> bool:
    """Whether a path, or what it links to, is there and is no file that a name can be given to."""
    return path.exists() and not path.is_file()


def _linked(path: Path) -> Path:
    """Return the file that a link names, there or not; another path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path
