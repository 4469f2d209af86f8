"""The JSON schema of spec files, drawn from the records that read them."""

from dataclasses import MISSING
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

from zeroplan.schemas import Drawing, Schema, document, sentences
from zeroplan.spec.hints import AUTO
from zeroplan.spec.reading import keys
from zeroplan.spec.toml import SCHEMA_VERSION
from zeroplan.spec.words import Range

__all__ = ["spec_schema", "special"]

TITLE: Final = "zeroplan spec"


def spec_schema() -> Schema:
    """Return the schema of a spec file; no key is required, for flags may give what it lacks."""
    root = _table()
    drawing = Drawing(special=special)
    for dotted, key in keys().items():
        shape = drawing.value(key.hint, key.name)
        shape["description"] = sentences(key.record)[key.name]
        if key.default is not MISSING:
            shape["default"] = AUTO if key.default is None else key.default
        *tables, name = dotted.split(".")
        _inside(root, tables)["properties"][name] = shape
    return document(TITLE, SCHEMA_VERSION, root)


def special(drawing: Drawing, hint: Any, key: str) -> Schema | None:
    """Return what the words and ranges of keys stand for; None is spelled "auto"."""
    if hint is NoneType:
        return {"enum": [AUTO]}  # draft 4, which TOML editors read, has no const
    if get_origin(hint) is not Annotated:
        return None
    base, bounds = get_args(hint)
    plain = drawing.value(base, key)
    if isinstance(bounds, Range):
        return plain | {"minimum": bounds.low, "maximum": bounds.high}
    return plain | {"pattern": f"^({bounds.regex})$"}


def _table() -> Schema:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _inside(root: Schema, tables: list[str]) -> Schema:
    """Return the table that dotted names lead to, made where it is not there yet."""
    for name in tables:
        root = root["properties"].setdefault(name, _table())
    return root
