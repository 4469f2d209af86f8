"""`zeroplan inspect` says what a model is, to a person and to a program."""

import json

import pytest
from typer.testing import CliRunner

from zeroplan.cli import app
from zeroplan.errors import SpecError, UsageError
from zeroplan.spec.presets import list_presets

LLAMA_8B_PARAMETERS = 8_030_261_248
"""Of meta-llama/Llama-3.1-8B: 2 x 128256 x 4096 for embedding and head, and 32 blocks."""


def _inspect(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["inspect", *arguments], env={"COLUMNS": "100"})
    if isinstance(result.exception, SpecError | UsageError):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_a_person_reads_exact_counts_and_bytes() -> None:
    page = _inspect("llama-3.1-8b")
    rows = {
        line.split("  ")[0].strip(): line.split()[-2] for line in page.splitlines() if "," in line
    }
    assert rows["total"] == f"{LLAMA_8B_PARAMETERS:,}"
    assert rows["token embedding"] == rows["head"] == f"{128_256 * 4096:,}"
    assert "decoder: 32 blocks of width 4,096" in page
    assert "29.9 GiB in fp32, 15.0 GiB in bf16" in page


def test_a_program_reads_the_keys_of_the_contract() -> None:
    document = json.loads(_inspect("llama-3.1-8b", "--json"))
    model = document["model"]
    assert document["schema_version"] == 1
    assert list(model)[:9] == [
        "name",
        "architecture",
        "total_parameters",
        "trainable_parameters",
        "embedding_parameters",
        "non_embedding_parameters",
        "active_parameters_per_token",
        "blocks",
        "hidden_size",
    ]
    assert model["total_parameters"] == LLAMA_8B_PARAMETERS
    assert model["forward_flop_per_token"]["sequence_length"] == 4096


def test_the_sequence_length_changes_the_flops_alone() -> None:
    short, long = (
        json.loads(_inspect("llama-3.1-8b", "--json", "-s", length))["model"]
        for length in ("1024", "2048")
    )
    assert short["total_parameters"] == long["total_parameters"]
    assert short["forward_flop_per_token"]["value"] < long["forward_flop_per_token"]["value"]


def test_a_tied_head_is_shown_and_counts_nothing() -> None:
    assert "head, tied to the embedding" in _inspect("gpt2")


def test_every_preset_is_listed() -> None:
    assert _inspect("--list").split() == list(list_presets())
    assert json.loads(_inspect("--list", "--json"))["presets"] == list(list_presets())


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(SpecError, match="Perhaps you meant"):
        _inspect("llama-3.1-8")


def test_no_model_is_a_wrong_command_line() -> None:
    with pytest.raises(UsageError, match="--list"):
        _inspect("--json")
