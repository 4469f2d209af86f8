"""Read profile files; a fault names the place, the value and the remedy."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from zeroplan.errors import SpecError, perhaps
from zeroplan.hardware.profile import MAPPING_KEYS, SCHEMA_VERSION, Fit, Gpu, Link, Node, entries
from zeroplan.hardware.quantity import Choice, Quantity, unit_of
from zeroplan.records import dataclass, fields

__all__ = ["Source", "read_any", "read_profile", "read_sources"]

Table = dict[str, Any]
P = TypeVar("P", Gpu, Link, Node)
R = TypeVar("R")

TABLES: Final = (Choice, Fit)
"""What stands as a table of its own in a profile, apart from quantities."""

_KIND_NAMES: Final[dict[type, str]] = {
    dict: "a table",
    list: "a list",
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where numbers come from."""

    title: str
    """What it is, precise enough to find it again."""
    url: str = ""
    """Address; empty where the source is this project's own judgement."""
    version: str = ""
    """Commit, release or date that was read."""


def read_profile(path: Path, record: type[P], sources: Mapping[str, Source]) -> P:
    """Read one profile.

    Parameters
    ----------
    path
        TOML file, named after the id of the profile.
    record
        What the file holds: `Gpu`, `Link` or `Node`.
    sources
        The known sources; a number that cites another one is refused.

    """
    with _at(path.name):
        profile = _build(record, _load(path))
        if profile.id != path.stem:
            message = f"id is {profile.id!r}, but the file is named {path.name!r}."
            raise SpecError(message)
        for key, entry in entries(profile):
            with _at(key):
                _check_source(entry.source, sources)
    return profile


def read_any(path: Path, sources: Mapping[str, Source]) -> Gpu | Link | Node:
    """Read a profile of whatever kind its keys are of."""
    with _at(path.name):
        keys = set(_load(path))
    if "peak_flop_per_second" in keys:
        return read_profile(path, Gpu, sources)
    if "scope" in keys:
        return read_profile(path, Link, sources)
    return read_profile(path, Node, sources)


def read_sources(path: Path) -> dict[str, Source]:
    """Read a `sources.toml`; a folder without one adds no sources."""
    if not path.is_file():
        return {}
    with _at(path.name):
        return {key: _source(key, table) for key, table in _load(path).items()}


def _source(key: str, table: object) -> Source:
    with _at(key):
        return _build(Source, table)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place before what is said about a fault in it."""
    try:
        yield
    except SpecError as error:
        message = f"{place}: {error}"
        raise SpecError(message) from error


def _load(path: Path) -> Table:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        message = f"cannot be read as TOML: {error}"
        raise SpecError(message) from error
    version = table.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        message = f"schema_version is {version!r}; this release reads {SCHEMA_VERSION}."
        raise SpecError(message)
    return table


def _build(record: type[R], table: object, **given: str) -> R:
    """Make a record of a table whose keys are those fields that are not given."""
    known: dict[str, Field[Any]] = {
        spec.name: spec
        for spec in fields(record)  # type: ignore[arg-type]  # every record is a dataclass
        if spec.name not in given
    }
    values = _expect(dict, table)
    for key in values:
        _check_known(key, known)
    for key, spec in known.items():
        if key not in values and spec.default is spec.default_factory is MISSING:
            message = f"{key} is missing."
            raise SpecError(message)
    return record(**{key: _placed(known[key].type, values[key], key) for key in values}, **given)


def _placed(kind: Any, value: object, key: str) -> object:
    with _at(key):
        return _value(kind, value, key)


def _value(kind: Any, value: object, key: str) -> object:
    """Turn one TOML value into what the field named `key` asks for."""
    origin, arguments = get_origin(kind), get_args(kind)
    if NoneType in arguments:
        return _value(arguments[0], value, key)
    if kind is Quantity:
        return _quantity(value, key)
    if origin is Literal:
        return _word(value, arguments)
    if origin is Mapping:
        return _mapping(arguments, value, key)
    if origin is tuple:
        return tuple(_expect(str, each) for each in _expect(list, value))
    return _build(kind, value) if kind in TABLES else _expect(kind, value)


def _quantity(table: object, key: str) -> Quantity:
    """Return a positive number in the unit of its key; an efficiency is at most 1."""
    quantity = _build(Quantity, table, unit=unit_of(key))
    most = 1 if "efficiency" in key else inf
    if not 0 < quantity.value <= most or quantity.value == inf:
        allowed = "in (0, 1]" if most == 1 else "above 0 and finite"
        message = f"value is {quantity.value}: it must be {allowed}."
        raise SpecError(message)
    return quantity


def _mapping(kinds: tuple[type, ...], table: object, key: str) -> dict[str | int, object]:
    """Return a table of entries whose names and values have the given kinds."""
    name_kind, entry_kind = kinds
    values = {}
    for name, entry in _expect(dict, table).items():
        with _at(name):
            values[_name(name_kind, name, key)] = _value(entry_kind, entry, key)
    return values


def _name(kind: type, name: str, key: str) -> str | int:
    """Return the name of an entry: a count, or one of the names known for the mapping."""
    if kind is not int:
        _check_known(name, MAPPING_KEYS[key])
        return name
    if not name.isdecimal():
        message = f"{name!r} must be a whole number."
        raise SpecError(message)
    return int(name)


def _word(value: object, words: tuple[str, ...]) -> str:
    if value not in words:
        message = f"{value!r} must be one of {', '.join(words)}.{perhaps(str(value), words)}"
        raise SpecError(message)
    return str(value)


def _expect(kind: type[R], value: object) -> R:
    """Return the value if it has the kind of the field; a whole number serves as a float."""
    kinds = (int, float) if kind is float else kind
    if isinstance(value, bool) or not isinstance(value, kinds):
        message = f"{value!r} must be {_KIND_NAMES[kind]}."
        raise SpecError(message)
    return value  # type: ignore[return-value]  # an int where a float is asked for


def _check_known(key: str, known: Collection[str]) -> None:
    if key not in known:
        message = f"unknown key {key!r}.{perhaps(key, known)}"
        raise SpecError(message)


def _check_source(source: str, sources: Mapping[str, Source]) -> None:
    if source not in sources:
        message = f"source {source!r} is not in sources.toml.{perhaps(source, sources)}"
        raise SpecError(message)
