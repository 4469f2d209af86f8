"""Records of runs, read back from their files."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from zeroplan.errors import SpecError
from zeroplan.records import fields, is_dataclass
from zeroplan.spec.reading import checked, flatten, read_run
from zeroplan.units import MIB
from zeroplan.validate.measurement import SCHEMA_VERSION, RunRecord

__all__ = ["read_record"]

MOST_BYTES: Final = 64 * MIB
"""Far above any record. [B]"""


def read_record(path: str | Path) -> RunRecord:
    """Return the record of a run that a file holds.

    Raises
    ------
    SpecError
        There is no such file, it is cut short, of a newer version, or no record; the message names
        the place.
    """
    values = _document(Path(path))
    version = values.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise SpecError(
            f"{path}: schema_version = {version!r}: this zeroplan reads records of version "
            f"{SCHEMA_VERSION}; a newer record needs a newer zeroplan."
        )
    values.pop("zeroplan_version", None)
    tables = values.get("inputs")
    if not isinstance(tables, dict):
        raise SpecError(f"{path}: inputs: expected a table; this is no record of a run.")
    run = read_run(checked(flatten(tables), lambda dotted: f"{path}: inputs.{dotted}"))
    found = _read(RunRecord, values | {"inputs": run}, f"{path}: ")
    if not isinstance(found, RunRecord):
        raise SpecError(f"{path}: this is no record of a run.")
    return found


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SpecError(f"{path}: too long for a record; at most {MOST_BYTES} bytes.")
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
    except OSError as error:
        raise SpecError(
            f"{path}: {error.strerror}; give the path of a record, as `zeroplan validate --record` "
            "writes it."
        ) from None
    except (ValueError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        raise SpecError(f"{path}: not JSON, or cut short: {reason}.") from None
    if not isinstance(values, dict):
        raise SpecError(f"{path}: this is no record of a run.")
    return values


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no figure")


def _read(hint: Any, value: object, place: str) -> object:
    """Return a plain value as its annotation has it."""
    if get_origin(hint) in (Union, UnionType):
        return _read_one_of(get_args(hint), value, place)
    if get_origin(hint) is tuple and isinstance(value, list):
        inner = get_args(hint)[0]
        return tuple(_read(inner, each, f"{place}[{i}]") for i, each in enumerate(value))
    if get_origin(hint) is dict and isinstance(value, dict):
        inner = get_args(hint)[1]
        return {name: _read(inner, each, f"{place}.{name}") for name, each in value.items()}
    if isinstance(hint, type) and is_dataclass(hint) and not isinstance(value, hint):
        return _read_fields(hint, value, place)
    if hint is float and type(value) is int:
        return float(value)
    if hint is Any or type(value) is hint or value in get_args(hint):
        return value
    raise SpecError(f"{place} = {_shown(value)}: expected {_words(hint)}.")


def _read_one_of(choices: tuple[Any, ...], value: object, place: str) -> object:
    if value is None and NoneType in choices:
        return None
    (choice,) = (each for each in choices if each is not NoneType)
    return _read(choice, value, place)


def _read_fields(record: type[Any], value: object, place: str) -> object:
    """Return a record; a field that a later version added is left out, and none may be missing."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{place} = {_shown(value)}: expected a table.")
    given = {}
    for entry in fields(record):
        inner = f"{place}.{entry.name}".replace(": .", ": ")
        if entry.name not in value:
            raise SpecError(f"{inner}: missing.")
        given[entry.name] = _read(entry.type, value[entry.name], inner)
    return record(**given)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."  # noqa: PLR2004  # a line's half


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return "a list"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names.get(hint, "a table")
