"""JSON schemas of the profile files, drawn from the records that read them.

`python -m zeroplan.hardware.schema hardware_profiles/schema` writes them anew.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from zeroplan.hardware.profile import MAPPING_KEYS, SCHEMA_VERSION, Gpu, Link, Node
from zeroplan.hardware.quantity import Quantity, unit_of
from zeroplan.hardware.read import Source
from zeroplan.schemas import Drawing, Schema, document, text

__all__ = ["json_schemas"]


def json_schemas() -> dict[str, str]:
    """Return the text of each schema file by its name."""
    schemas = {f"{record.__name__.lower()}.json": _profile(record) for record in (Gpu, Link, Node)}
    sources = {
        "required": ["schema_version"],
        "additionalProperties": _drawing().record(Source),
    }
    schemas["sources.json"] = document(_title("sources"), SCHEMA_VERSION, sources)
    return {name: text(schema) for name, schema in schemas.items()}


def _profile(record: type[Gpu | Link | Node]) -> Schema:
    shape = _drawing().record(record)
    shape["required"].insert(0, "schema_version")
    return document(_title(record.__name__.lower()), SCHEMA_VERSION, shape)


def _title(kind: str) -> str:
    return f"zeroplan hardware profile: {kind}"


def _drawing() -> Drawing:
    return Drawing(special=_special)


def _special(drawing: Drawing, hint: Any, key: str) -> Schema | None:
    """Return what a profile's own types stand for; what is unknown is left out of a file."""
    arguments = get_args(hint)
    if NoneType in arguments:
        return drawing.value(arguments[0], key)
    if get_origin(hint) is Mapping:
        names = (
            {"enum": list(MAPPING_KEYS[key])} if key in MAPPING_KEYS else {"pattern": "^[0-9]+$"}
        )
        entry = drawing.value(arguments[1], key)
        return {"type": "object", "propertyNames": names, "additionalProperties": entry}
    return _quantity(drawing, key) if hint is Quantity else None


def _quantity(drawing: Drawing, key: str) -> Schema:
    schema = drawing.record(Quantity, without="unit")
    schema["description"] = f"Unit: {unit_of(key)}"
    schema["properties"]["value"] |= {"exclusiveMinimum": 0}
    if "efficiency" in key:
        schema["properties"]["value"] |= {"maximum": 1}
    schema["if"] = {"properties": {"kind": {"enum": ["fitted", "assumed"]}}}
    schema["then"] = {"required": ["rel_uncertainty"]}
    return schema


if __name__ == "__main__":
    for name, content in json_schemas().items():
        Path(sys.argv[1], name).write_text(content, encoding="utf-8")
