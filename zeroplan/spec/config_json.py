"""Reading a stranger's `config.json`: as data, with a bound on everything."""

import json
from pathlib import Path
from typing import Final

from zeroplan.errors import SpecError

__all__ = ["MAX_BYTES", "parse_config", "read_config"]

MAX_BYTES: Final = 4 * 2**20
"""Far above any published file (the longest list rotary factors or per-block tables). [B]"""


def read_config(path: Path) -> dict[str, object]:
    """Return the keys of a model file; a directory means the `config.json` in it."""
    try:
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            raise SpecError(f"{file}: no such file; give the path to a model's config.json")
        size_bytes = file.stat().st_size
        if size_bytes > MAX_BYTES:
            raise SpecError(
                f"{file}: {size_bytes} bytes is too long for a config.json; at most {MAX_BYTES}"
            )
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null byte in the path
        raise SpecError(f"{str(path)!r}: cannot be read as text ({error})") from None
    return parse_config(text, str(file))


def parse_config(text: str, place: str) -> dict[str, object]:
    """Return the keys of a model file's text; `place` names it in errors."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_constant)
    except RecursionError:
        raise SpecError(f"{place}: nested too deeply for a config.json") from None
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{place}: line {error.lineno}, column {error.colno}: not JSON ({error.msg})"
        ) from None
    except ValueError as error:
        raise SpecError(f"{place}: {error}") from None
    if not isinstance(value, dict):
        raise SpecError(f"{place}: a config.json holds one object, not a {type(value).__name__}")
    return value


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a key that is given twice with two values."""
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result and result[key] != value:
            raise ValueError(f"key {key!r} is given twice: {result[key]!r} and {value!r}")
        result[key] = value
    return result


def _constant(word: str) -> float:
    """Admit Infinity, which published files hold (Mamba's `time_step_limit`), but not NaN."""
    if word == "NaN":
        raise ValueError("a value is NaN; write the number or leave the key out")
    return float(word)
