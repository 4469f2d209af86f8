"""The JSON schemas are generated, committed and of one mind with the reader."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from zeroplan.hardware import load_catalogue
from zeroplan.hardware.catalogue import FOLDERS
from zeroplan.hardware.schema import json_schemas

SHIPPED = load_catalogue().folders[-1]
FILES = sorted(path for folder in FOLDERS.values() for path in (SHIPPED / folder).glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_accepts_the_file(path: Path) -> None:
    names = {folder: f"{record.__name__.lower()}.json" for record, folder in FOLDERS.items()}
    schema = json.loads(json_schemas()[names[path.parent.name]])
    jsonschema.Draft202012Validator(schema).validate(tomllib.loads(path.read_text("utf-8")))


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    schema = json.loads(json_schemas()["gpu.json"])
    table = tomllib.loads((SHIPPED / "gpus" / "h100-sxm5-80gb.toml").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for change in (
        {"hbm_efficiency": table["hbm_efficiency"] | {"value": 1.1}},
        {"hbm_efficiency": table["hbm_efficiency"] | {"kind": "guessed"}},
        {"hbm_efficiency": {"value": 0.9, "kind": "assumed", "source": "judgement"}},
        {"peak_flop_per_second": {"bf61": table["sms"]}},
        {"bandwith": 1},
        {"schema_version": 2},
    ):
        assert not validator.is_valid(table | change), change


def test_the_committed_schemas_are_the_generated_ones() -> None:
    committed = {path.name: path.read_text("utf-8") for path in (SHIPPED / "schema").iterdir()}
    assert committed == json_schemas(), "run `python -m zeroplan.hardware.schema` on the folder"


def test_the_schema_accepts_the_sources() -> None:
    schema = json.loads(json_schemas()["sources.json"])
    table = tomllib.loads((SHIPPED / "sources.toml").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(table)
    assert not validator.is_valid(table | {"bench": {"url": "https://example.org"}})
