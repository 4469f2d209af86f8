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
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name a file.")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{option} {path}: nothing can be written in {folder}.")


def write_whole(path: Path, text: str, option: str) -> None:
    """Write a file whole or not at all; its folder is made, and that is said."""
    write_by(path, lambda part: part.write_text(text, encoding="utf-8"), option)


def write_by(path: Path, write: Callable[[Path], object], option: str) -> None:
    """Let a file be written under another name first, which it keeps only if that goes well."""
    part = path.with_name(f"{path.name}.part")
    made = "" if path.parent.exists() else f"made the folder {path.parent}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}.") from None
    finally:
        with suppress(OSError):  # where no folder could be made there is nothing to take away
            part.unlink(missing_ok=True)
    sys.stderr.write(f"{made}wrote {path}\n")
