"""A step that is kept answers as one written afresh, and no other question than its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation import answer as answers
from zeroplan.estimation import estimate, steps
from zeroplan.estimation.answer import answer
from zeroplan.estimation.resolve import resolve
from zeroplan.records import replace
from zeroplan.spec.toml import load_spec

BASE: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": 16, "sequence_length": 1024}
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"gpu": "a100-sxm4-80gb"},
    {"link": "ethernet-25g"},
    {"intra_link": "pcie4"},
    {"gpus_per_node": 4},
    {"backend": "gloo"},
    {"gpus": 32},
    {"model": "llama-3.2-1b"},
    {"sequence_length": 512},
    {"compute_dtype": "fp16"},
    {"loss": "chunked"},
    {"compile": True},
    {"strategy": "zero3"},
    {"strategy": "zero3", "stage3_prefetch_bucket_size": 0},
    {"strategy": "hsdp", "shard_size": 4},
)


@pytest.fixture
def _empty() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    for kept in (answers._written, steps.shared, steps.timed):  # noqa: SLF001
        kept.cache_clear()


def asked(change: dict[str, Any]) -> str:
    return estimate(**{**BASE, **change}).to_json()


@pytest.mark.usefixtures("_empty")
def test_kept_steps_answer_as_fresh_ones() -> None:
    fresh = []
    for change in CHANGES:
        forget()
        fresh.append(asked(change))
    forget()
    for _ in range(2):
        assert [asked(change) for change in CHANGES] == fresh


@pytest.mark.usefixtures("_empty")
def test_other_hardware_writes_nothing_down_again() -> None:
    """Five strategies and HSDP over two nodes, priced on three machines."""
    for hardware in ({}, {"gpu": "a100-sxm4-80gb"}, {"link": "ethernet-25g"}):
        asked(hardware)
    assert answers._written.cache_info().misses == 6  # noqa: SLF001
    assert steps.timed.cache_info().misses == 3 * 6


@pytest.mark.usefixtures("_empty")
def test_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    peaks = []
    for layers in (2, 4, 2):
        config = {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 500,
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        (found,) = estimate(model=str(tmp_path), gpus=2, strategy="fsdp2").estimates
        peaks.append(found.memory.peak_tensor_bytes)
    assert peaks[0] < peaks[1]
    assert peaks[2] == peaks[0]
    assert answers._written.cache_info().misses == 2  # noqa: SLF001


@pytest.mark.usefixtures("_empty")
def test_links_of_one_name_are_told_apart() -> None:
    """A folder of profiles may change a shipped one."""
    question = resolve(load_spec(**BASE, strategy="zero3"))
    (now,) = answer(question).estimates
    inter = question.wires.inter
    base = replace(inter.base_seconds, value=1.0)
    later = replace(
        question, wires=replace(question.wires, inter=replace(inter, base_seconds=base))
    )
    (late,) = answer(later).estimates
    assert (late.time.communication_seconds or 0) > (now.time.communication_seconds or 0)
