"""The published JSON schemas are the generated ones, and of one mind with readers and answers."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from zeroplan import estimate
from zeroplan.errors import SpecError
from zeroplan.estimation.budget import with_budget
from zeroplan.spec.reading import checked, flatten, keys
from zeroplan.spec.toml import load_spec, to_toml

HOME = Path(__file__).parents[2]
FOLDER = HOME / "docs" / "schemas"
RECORDS = sorted((HOME / "tests" / "calibration" / "records").glob("*.json"))
SPECS = [*sorted((HOME / "tests").glob("**/run.toml"))]


def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schemas_are_the_generated_ones() -> None:
    published = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    files = runpy.run_path(str(HOME / "docs" / "schemas.py"))["files"]()
    assert published == files, "run `python docs/schemas.py`"


def test_every_key_of_a_spec_is_described_and_has_its_default() -> None:
    root = _validator("spec").schema
    for dotted in keys():
        shape: Any = root
        for name in dotted.split("."):
            shape = shape["properties"][name]
        assert shape["description"].endswith((".", "]"))
        assert ("default" in shape) is (dotted != "model.source")


def test_the_spec_files_that_people_are_shown_are_valid() -> None:
    page = (HOME / "docs" / "editor.md").read_text("utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown = [block for block in blocks if "schema_version" in block]
    texts = [*shown, *(path.read_text("utf-8") for path in SPECS)]
    assert len(texts) > 1
    for text in texts:
        _validator("spec").validate(tomllib.loads(text))


@pytest.mark.parametrize("strategy", ["auto", "ddp", "zero3", "fsdp2"])
def test_a_spec_that_is_written_is_valid(strategy: str) -> None:
    run = load_spec(None, model="8b", strategy=strategy, lora_rank=0 if strategy == "auto" else 16)
    _validator("spec").validate(tomllib.loads(to_toml(run)))


WRONG = {
    "model.attention": "flahs",
    "model.compile": "yes",
    "model.source": 8,
    "training.sequence_length": 0,
    "training.micro_batch_size": "auto",
    "training.activation_checkpointing": "every-0",
    "training.gradient_clipping": -1,
    "training.precision": "fp64",
    "training.sequence": 4096,
    "tuning.lora_dropout": 2,
    "sharding.strategy": "zero4",
    "sharding.deepspeed.version": "0.19",
    "sharding.deepspeed.reduce_bucket_size": 1.5,
    "cluster.gpus": 10**7,
}
RIGHT = {
    "model.source": "70b",
    "training.sequence_length": "auto",
    "training.activation_checkpointing": "every-12",
    "training.gradient_clipping": 1,
    "training.precision": "bf16-mixed",
    "sharding.reshard_after_forward": 8,
    "sharding.strategy": "auto",
    "sharding.deepspeed.reduce_bucket_size": 5e8,
    "cluster.gpu": "auto",
    "cluster.gpus": 64,
}


@pytest.mark.parametrize(("dotted", "value"), [*WRONG.items(), *RIGHT.items()])
def test_the_schema_refuses_what_the_reader_refuses(dotted: str, value: object) -> None:
    table: Any = value
    for name in reversed(dotted.split(".")):
        table = {name: table}
    valid = _validator("spec").is_valid(table)
    try:
        checked(flatten(table))
    except SpecError:
        assert not valid
    else:
        assert valid
    assert valid is (RIGHT.get(dotted) == value)


@pytest.mark.parametrize(
    "asked",
    [
        {"gpus": 16},
        {"strategy": "zero3", "offload_optimizer": "nvme", "host_memory_bytes": 2**40},
        {"strategy": "fsdp1", "lora_rank": 16},
    ],
    ids=["compared", "offloaded", "tuned"],
)
def test_an_answer_is_valid(asked: dict[str, Any]) -> None:
    found = estimate(model="llama-3.1-8b", **asked)
    validator = _validator("result")
    for each in (found, with_budget(found, 10**9, {"": 2.5}, None)):
        answer = json.loads(each.to_json())
        validator.validate(answer)
        assert not validator.is_valid(answer | {"estimates": [{"strategy": "ddp"}]})
        assert not validator.is_valid(answer | {"notes": "none"})


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_of_a_run_is_valid(path: Path) -> None:
    record = json.loads(path.read_text("utf-8"))
    validator = _validator("record")
    validator.validate(record)
    assert not validator.is_valid(record | {"outcome": {"kind": "fine"}})
    assert not validator.is_valid({**record, "schema_version": 2})
