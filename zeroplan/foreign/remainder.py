"""What an exported file cannot say in its own keys: kept in comments, or under one key of JSON.

An entry is a spec key, its value, and what the file's own keys gave in its place when it was written.
Where they give something else by now, somebody has changed the file, and the file counts.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.spec.reading import keys

__all__ = ["BLOCK", "Kept", "as_comments", "as_key", "kept_in", "split_kept"]

BLOCK: Final = "zeroplan"
"""DeepSpeed ignores a key at the top that it does not know."""
INSTEAD: Final = " instead of "
_LINE: Final = re.compile(r"^# zeroplan: ([a-z0-9_.]+) = (.+)$", re.MULTILINE)

Kept = Mapping[str, tuple[Any, ...]]
"""By spec key: the value, and, where the file's own keys set the key too, what they gave."""


def as_comments(kept: Kept) -> str:
    """Return lines of comment for YAML, TOML and Python."""
    lines = (
        f"# zeroplan: {key} = {INSTEAD.join(json.dumps(each) for each in values)}\n"
        for key, values in kept.items()
    )
    return "".join(lines)


def as_key(kept: Kept) -> dict[str, Any]:
    """Return a block of JSON; empty where there is nothing to keep."""
    return {BLOCK: {key: list(values) for key, values in kept.items()}} if kept else {}


def kept_in(text: str, place: str) -> Kept:
    """Return what comments keep."""
    return {
        key: tuple(_value(part, place) for part in written.split(INSTEAD))
        for key, written in _LINE.findall(text)
        if key in keys()
    }


def split_kept(given: Mapping[str, Any], place: str) -> tuple[dict[str, Any], Kept]:
    """Return the values of a JSON file without its block, and what the block keeps."""
    start = f"{BLOCK}."
    kept = {key.removeprefix(start): value for key, value in given.items() if key.startswith(start)}
    for key, value in kept.items():
        if key not in keys() or not isinstance(value, list) or len(value) not in (1, 2):
            raise SpecError(f"{place}: {start}{key}: not written by zeroplan export; leave it out.")
    rest = {key: value for key, value in given.items() if not key.startswith(start)}
    return rest, {key: tuple(value) for key, value in kept.items()}


def _value(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SpecError(
            f"{place}: # zeroplan: {text[:60]}: not written by zeroplan export."
        ) from None
