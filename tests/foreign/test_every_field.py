"""Every field of DeepSpeed's ZeRO classes and of accelerate's FSDP plugin is settled, and is tried."""

import dataclasses
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from zeroplan.foreign.accelerate_table import ACCELERATE
from zeroplan.foreign.deepspeed_table import DEEPSPEED
from zeroplan.foreign.formats import FORMATS, values_of
from zeroplan.foreign.table import Table, nearest
from zeroplan.spec.reading import keys

HERE = Path(__file__).parent
FIELDS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "fields.toml").read_text())
CASES: list[dict[str, Any]] = tomllib.loads((HERE / "inputs.toml").read_text())["case"]
BLOCKS = {"zero": "zero_optimization", "offload_param": "zero_optimization.offload_param", "offload_optimizer": "zero_optimization.offload_optimizer"}  # fmt: skip


def _zero_keys() -> list[str]:
    held = FIELDS["deepspeed"]
    names = [f"{block}.{name}" for part, block in BLOCKS.items() for name in held[part]]
    return [name for name in names if name not in BLOCKS.values()]


def _fsdp_keys() -> list[str]:
    return [
        f"fsdp_config.fsdp_{name.removeprefix('fsdp_')}" for name in FIELDS["accelerate"]["fsdp"]
    ]


def _tried(form: str) -> set[str]:
    texts = [
        case["text"]
        for case in CASES
        if case["format"] == form and "comes twice" not in case.get("refused", ())
    ]
    return {key for text in texts for key in values_of(FORMATS[form], text, "a.input")}


@pytest.mark.parametrize("key", _zero_keys())
def test_a_field_of_zero_is_settled(key: str) -> None:
    assert nearest(DEEPSPEED, key) is not None


@pytest.mark.parametrize("key", _fsdp_keys())
def test_a_field_of_the_fsdp_plugin_is_settled(key: str) -> None:
    assert nearest(ACCELERATE, key) is not None


def test_every_field_stands_in_a_small_file() -> None:
    zero, fsdp = _tried("deepspeed"), _tried("accelerate")
    blocks = {key.rpartition(".")[0] for key in zero}
    assert [
        key for key in _zero_keys() if key not in zero | blocks and "leaf_module" not in key
    ] == []
    assert [key for key in _fsdp_keys() if key not in fsdp] == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_names_spec_keys_that_there_are_and_says_why(name: str) -> None:
    table: Table = FORMATS[name].table
    for entry in table.values():
        names = [part.strip() for part in entry.becomes.split(",") if part]
        if entry.use == "renamed":
            assert table[entry.becomes].use != "renamed"
        else:
            assert [each for each in names if each not in keys()] == []
        assert entry.why or entry.use == "read"


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed")
def test_the_list_of_zeros_fields_is_deepspeeds() -> None:
    from deepspeed import __version__  # noqa: PLC0415
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # noqa: PLC0415
    from deepspeed.runtime.zero.offload_config import (  # noqa: PLC0415
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )

    classes = {
        "zero": DeepSpeedZeroConfig,
        "offload_param": DeepSpeedZeroOffloadParamConfig,
        "offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
    }
    for part, owner in classes.items():
        real = {
            each
            for name, field in owner.model_fields.items()
            for each in (name, field.alias or name)
        }
        assert [
            name
            for name in real
            if nearest(DEEPSPEED, f"{BLOCKS[part]}.{name}") is None
            and f"{BLOCKS[part]}.{name}" not in BLOCKS.values()
        ] == []
        if __version__ == FIELDS["deepspeed"]["version"]:
            assert real == set(FIELDS["deepspeed"][part])


@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")
def test_the_list_of_the_plugins_fields_is_accelerates() -> None:
    from accelerate import FullyShardedDataParallelPlugin, __version__  # noqa: PLC0415

    real = [field.name for field in dataclasses.fields(FullyShardedDataParallelPlugin)]
    known = [f"fsdp_config.fsdp_{name.removeprefix('fsdp_')}" for name in real]
    assert [key for key in known if nearest(ACCELERATE, key) is None] == []
    if __version__ == FIELDS["accelerate"]["version"]:
        assert real == FIELDS["accelerate"]["fsdp"]


@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")
def test_the_keys_of_a_cluster_are_accelerates() -> None:
    from accelerate.commands.config.config_args import ClusterConfig  # noqa: PLC0415

    tops = {key.partition(".")[0] for key in ACCELERATE}
    assert [
        field.name for field in dataclasses.fields(ClusterConfig) if field.name not in tops
    ] == []


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_every_argument_of_the_trainer_is_settled() -> None:
    from transformers import TrainingArguments  # noqa: PLC0415

    table = FORMATS["training-args"].table
    tops = {key.partition(".")[0] for key in table}
    assert [
        field.name for field in dataclasses.fields(TrainingArguments) if field.name not in tops
    ] == []
