"""A profile as the TOML file that reads back to it."""

import json
from collections.abc import Iterator, Mapping

from zeroplan.hardware import Choice, Quantity
from zeroplan.hardware.profile import SCHEMA_VERSION, Fit, Profile
from zeroplan.records import fields

__all__ = ["profile_toml"]


def profile_toml(profile: Profile) -> str:
    """Return the file of a GPU, a link or a node."""
    plain = [f"schema_version = {SCHEMA_VERSION}"]
    tables: list[str] = []
    for spec in fields(profile):
        value = getattr(profile, spec.name)
        if isinstance(value, Quantity | Choice | Fit):
            tables.append(_table(spec.name, value))
        elif isinstance(value, Mapping):
            tables += [_table(f"{spec.name}.{key}", each) for key, each in value.items()]
        elif value not in {None, ""}:
            plain.append(f"{spec.name} = {_value(value)}")
    return "\n".join(["\n".join(plain) + "\n", *tables])


def _table(name: str, record: Quantity | Choice | Fit) -> str:
    return "\n".join([f"[{name}]", *_lines(record)]) + "\n"


def _lines(record: Quantity | Choice | Fit) -> Iterator[str]:
    for spec in fields(record):
        value = getattr(record, spec.name)
        if spec.name != "unit" and value not in {None, ""}:  # the key says the unit
            yield f"{spec.name} = {_value(value)}"


def _value(value: object) -> str:
    """Return a value in TOML, whose basic strings are JSON's."""
    if isinstance(value, tuple):
        return "[\n" + "".join(f"  {_value(each)},\n" for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
