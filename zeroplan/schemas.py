"""JSON schemas of records, drawn from the types of their fields.

One walk serves what users write (profiles, specs) and what zeroplan writes (results, records of
runs); each room says by a `Special` what its own types and units stand for.
"""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from zeroplan.records import dataclass, fields, is_dataclass

__all__ = [
    "Drawing",
    "Schema",
    "Special",
    "document",
    "sentences",
    "text",
]

Schema = dict[str, Any]
Special = Callable[["Drawing", Any, str], Schema | None]
"""The schema of a type under a key where it is not the usual one, else None."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final[dict[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
}


def document(title: str, version: int, shape: Schema) -> Schema:
    """Return the schema of a whole file or answer, which tells its `schema_version`."""
    properties = {"schema_version": {"const": version}, **shape.get("properties", {})}
    head = {"$schema": DIALECT, "title": title, "type": "object", "properties": properties}
    return head | {name: value for name, value in shape.items() if name not in head}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How the records of a room are drawn."""

    special: Special
    """What a type stands for where it is not the usual."""
    whole: bool = False
    """Whether fields that have a default must be there too, as where zeroplan writes them."""
    told: bool = False
    """Whether the sentences under the fields become descriptions."""

    def record(self, record: type, without: str = "") -> Schema:
        """Return the schema of a record's fields, of all but one where one is named."""
        entries = [entry for entry in fields(record) if entry.name != without]
        words = sentences(record) if self.told else {}
        return {
            "type": "object",
            "properties": {
                entry.name: self.value(entry.type, entry.name)
                | ({"description": words[entry.name]} if entry.name in words else {})
                for entry in entries
            },
            "required": [
                entry.name
                for entry in entries
                if self.whole or entry.default is entry.default_factory is MISSING
            ],
            "additionalProperties": False,
        }

    def value(self, hint: Any, key: str) -> Schema:
        """Return the schema of one value by its type."""
        found = self.special(self, hint, key)
        if found is None and is_dataclass(hint) and isinstance(hint, type):
            found = self.record(hint)
        if found is not None:
            return found
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, UnionType):
            return _either([self.value(each, key) for each in arguments])
        if origin in (Mapping, dict):
            return {"type": "object", "additionalProperties": self.value(arguments[1], key)}
        if origin is tuple:
            return {"type": "array", "items": self.value(arguments[0], key)}
        return {} if hint is Any else {"type": _PLAIN[hint]}


def _either(choices: list[Schema]) -> Schema:
    """Return the schema of a value that is one of several; plain types share a list."""
    if all(each.keys() == {"type"} for each in choices):
        return {"type": [each["type"] for each in choices]}
    return {"anyOf": choices}


def text(schema: Schema) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


@cache
def sentences(record: type) -> dict[str, str]:
    """Return the sentence under each field of a record, which only its source holds."""
    tree = _tree(record.__module__)
    body = next(
        each.body
        for each in tree.body
        if isinstance(each, ast.ClassDef) and each.name == record.__name__
    )
    return {
        field.target.id: inspect.cleandoc(ast.literal_eval(doc.value))
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
    }


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))
