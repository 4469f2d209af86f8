"""Spec files: TOML in, TOML out."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zeroplan.errors import SpecError, perhaps
from zeroplan.rows import plain
from zeroplan.spec.hints import AUTO
from zeroplan.spec.reading import checked, flatten, keys, read_run
from zeroplan.spec.run import Run

__all__ = [
    "MAX_BYTES",
    "SCHEMA_VERSION",
    "by_dotted_key",
    "load_spec",
    "read_file",
    "to_dict",
    "to_toml",
]

SCHEMA_VERSION: Final = 1

MAX_BYTES: Final = 2**20
"""Far above any spec, which has some fifty keys. [B]"""


def load_spec(file: str | Path | None = None, /, **overrides: object) -> Run:
    """Return the run of a spec file, of keys by name, or of both, where the keys win.

    Parameters
    ----------
    file
        Path of a TOML file; "-" is standard input.
    **overrides
        Keys of the spec file by their bare name; `model` is `model.source`.

    Examples
    --------
    >>> load_spec(model="70b", gpus=64, link="ib").cluster.gpus
    64

    """
    return read_run({} if file is None else read_file(file), checked(by_dotted_key(overrides)))


def by_dotted_key(values: Mapping[str, object]) -> dict[str, object]:
    """Return values by bare name under their dotted keys; `model` is `model.source`.

    Raises
    ------
    SpecError
        A bare name is no key's.
    """
    named = {"model": "model.source"} | {key.name: dotted for dotted, key in keys().items()}
    unknown = next((name for name in values if name not in named and "." not in name), None)
    if unknown is not None:
        raise SpecError(f"{unknown}: unknown key.{perhaps(unknown, named)}")
    return {named.get(name, name): value for name, value in values.items()}


def read_file(file: str | Path) -> dict[str, object]:
    """Return the checked values of a spec file by dotted key; "-" is standard input."""
    place = "standard input" if str(file) == "-" else str(file)
    tables = _parse(_text(file), place)
    version = tables.pop("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise SpecError(
            f"{place}: schema_version = {version!r}: this zeroplan reads version {SCHEMA_VERSION}."
        )
    values = checked(flatten(tables), lambda dotted: f"{place}: {dotted}")
    if "model.source" in values and str(file) != "-":
        source = Path(file).parent / str(values["model.source"])
        if source.is_file() or (source / "config.json").is_file():
            values["model.source"] = str(source)
    return values


def to_dict(run: Run) -> dict[str, Any]:
    """Return the run's tables as plain values, None spelled "auto"."""
    return _spelled(plain(run))


def to_toml(run: Run) -> str:
    """Return the run as a spec file that reads back as the same run."""
    lines = [f"schema_version = {SCHEMA_VERSION}"]
    current = ""
    for dotted, value in flatten(to_dict(run)).items():
        table, _, name = dotted.rpartition(".")
        if table != current:
            lines += ["", f"[{table}]"]
            current = table
        lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _spelled(tables: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _spelled(value) if isinstance(value, dict) else AUTO if value is None else value
        for name, value in tables.items()
    }


def _text(file: str | Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    path = Path(file)
    try:
        if path.exists() and not path.is_file():
            raise SpecError(f"{file}: not a file; give the path of a spec in TOML.")
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{file}: too long for a spec; at most {MAX_BYTES} bytes.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(
            f"{file}: {error.strerror}; give the path of a spec in TOML, such as `zeroplan estimate "
            "--model 8b --show-spec` prints."
        ) from None
    except UnicodeDecodeError:
        raise SpecError(f"{file}: not a text file; a spec is TOML in UTF-8.") from None


def _parse(text: str, place: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  # only where there is a file to read

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise SpecError(f"{place}: not TOML: {error}.") from None
