"""Files that a command writes."""

import sys
from pathlib import Path

from zeroplan.errors import UsageError

__all__ = ["write_whole"]


def write_whole(path: Path, text: str, option: str) -> None:
    """Write a file whole or not at all, under another name first; its folder is made."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        if part.is_file():
            part.unlink()
        raise UsageError(f"{option} {path}: {error.strerror}.") from None
    sys.stderr.write(f"wrote {path}\n")
