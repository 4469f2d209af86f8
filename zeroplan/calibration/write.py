"""A profile as the TOML file that reads back to it."""

import json
from collections.abc import Iterator, Mapping

from zeroplan.hardware import Link, Quantity
from zeroplan.hardware.profile import SCHEMA_VERSION, Fit
from zeroplan.records import fields

__all__ = ["link_toml"]


def link_toml(link: Link) -> str:
    """Return the file of a link."""
    plain = [f"schema_version = {SCHEMA_VERSION}"]
    tables: list[str] = []
    for spec in fields(link):
        value = getattr(link, spec.name)
        if isinstance(value, Quantity):
            tables.append(_table(spec.name, _quantity(value)))
        elif isinstance(value, Mapping):
            tables += [_table(f"{spec.name}.{key}", _quantity(each)) for key, each in value.items()]
        elif isinstance(value, Fit):
            tables.append(_table(spec.name, _fit(value)))
        elif value is not None:
            plain.append(f"{spec.name} = {_value(value)}")
    return "\n".join(["\n".join(plain) + "\n", *tables])


def _table(name: str, lines: Iterator[str]) -> str:
    return "\n".join([f"[{name}]", *lines]) + "\n"


def _quantity(quantity: Quantity) -> Iterator[str]:
    for spec in fields(quantity):
        value = getattr(quantity, spec.name)
        if spec.name != "unit" and value not in {None, ""}:  # the key says the unit
            yield f"{spec.name} = {_value(value)}"


def _fit(fit: Fit) -> Iterator[str]:
    for spec in fields(fit):
        value = getattr(fit, spec.name)
        if value not in {None, ""}:
            yield f"{spec.name} = {_value(value)}"


def _value(value: object) -> str:
    """Return a value in TOML, whose basic strings are JSON's."""
    if isinstance(value, tuple):
        return "[\n" + "".join(f"  {_value(each)},\n" for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
