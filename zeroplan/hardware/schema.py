"""JSON schemas of the profile files, drawn from the records that read them.

`python -m zeroplan.hardware.schema hardware_profiles/schema` writes them anew.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from zeroplan.hardware.profile import MAPPING_KEYS, SCHEMA_VERSION, Gpu, Link, Node
from zeroplan.hardware.quantity import Quantity, unit_of
from zeroplan.hardware.read import Source

__all__ = ["json_schemas"]

Schema = dict[str, Any]

_PLAIN: Final[dict[object, str]] = {str: "string", int: "integer", float: "number"}


def json_schemas() -> dict[str, str]:
    """Return the text of each schema file by its name."""
    schemas = {f"{record.__name__.lower()}.json": _profile(record) for record in (Gpu, Link, Node)}
    schemas["sources.json"] = _root("sources", {}, ["schema_version"]) | {
        "additionalProperties": _object(Source)
    }
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas.items()}


def _profile(record: type[Gpu | Link | Node]) -> Schema:
    shape = _object(record)
    shape["required"].insert(0, "schema_version")
    root = _root(record.__name__.lower(), shape["properties"], shape["required"])
    return root | {"additionalProperties": False}


def _root(title: str, properties: Schema, required: list[str]) -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"zeroplan hardware profile: {title}",
        "type": "object",
        "properties": {"schema_version": {"const": SCHEMA_VERSION}, **properties},
        "required": required,
    }


def _object(record: type, given: str = "") -> Schema:
    specs = [spec for spec in fields(record) if spec.name != given]
    return {
        "type": "object",
        "properties": {spec.name: _property(spec.type, spec.name) for spec in specs},
        "required": [
            spec.name for spec in specs if spec.default is spec.default_factory is MISSING
        ],
        "additionalProperties": False,
    }


def _property(kind: Any, key: str) -> Schema:
    """Return the schema of one field, by its type and the unit that its name ends in."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return {"enum": list(arguments)}
    if get_origin(kind) is Mapping:
        names = (
            {"enum": list(MAPPING_KEYS[key])} if key in MAPPING_KEYS else {"pattern": "^[0-9]+$"}
        )
        entry = _property(arguments[1], key)
        return {"type": "object", "propertyNames": names, "additionalProperties": entry}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": {"type": "string"}}
    kind = arguments[0] if arguments else kind
    if kind is Quantity:
        return _quantity(key)
    if is_dataclass(kind) and isinstance(kind, type):
        return _object(kind)
    return {"type": _PLAIN[kind]}


def _quantity(key: str) -> Schema:
    schema = _object(Quantity, given="unit")
    schema["description"] = f"Unit: {unit_of(key)}"
    schema["properties"]["value"] |= {"exclusiveMinimum": 0}
    if "efficiency" in key:
        schema["properties"]["value"] |= {"maximum": 1}
    schema["if"] = {"properties": {"kind": {"enum": ["fitted", "assumed"]}}}
    schema["then"] = {"required": ["rel_uncertainty"]}
    return schema


if __name__ == "__main__":
    for file_name, text in json_schemas().items():
        Path(sys.argv[1], file_name).write_text(text, encoding="utf-8")
