"""Files that a command writes."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from zeroplan.errors import UsageError

__all__ = ["write_by", "write_whole"]


def write_whole(path: Path, text: str, option: str) -> None:
    """Write a file whole or not at all; its folder is made."""
    write_by(path, lambda part: part.write_text(text, encoding="utf-8"), option)


def write_by(path: Path, write: Callable[[Path], object], option: str) -> None:
    """Let a file be written under another name first, which it keeps only if that goes well."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}.") from None
    finally:
        with suppress(OSError):  # where no folder could be made there is nothing to take away
            part.unlink(missing_ok=True)
    sys.stderr.write(f"wrote {path}\n")
