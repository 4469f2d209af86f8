"""DDP against real processes: peaks to the byte, and buckets against a walk over every block."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.estimation import estimate
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.schedule.plan import Plan
from zeroplan.spec.toml import load_spec

STEPS = tomllib.loads(Path(__file__).with_name("ddp_steps.toml").read_text())["step"]
MIB = 2**20
STORAGE_BYTES = 512
ROTARY_BYTES = 16384


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_each_phase_peaks_where_real_processes_do(step: dict[str, Any], tmp_path: Path) -> None:
    """But for Adam's step counters and the scalars of the loss (see test_fsdp2_peaks.py)."""
    found = estimate(**_keys(step, tmp_path)).estimates[0].memory.peak_by_phase_bytes
    fused = step["keys"].get("optimizer_implementation") == "fused"
    on_host = 0 if fused else 9 * step["blocks"] + (2 if step.get("tied") else 3)
    missing = [
        measured - on_host * STORAGE_BYTES - predicted
        for measured, predicted in zip(
            step["peak_bytes"], (found.forward, found.backward, found.optimizer), strict=True
        )
    ]
    assert missing == [0, 2 * STORAGE_BYTES, 0]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_buckets_and_broadcasts_are_those_of_real_processes(
    step: dict[str, Any], tmp_path: Path
) -> None:
    plan = _plan(**_keys(step, tmp_path))
    assert _reduced(plan) == Counter(step["buckets"] * step["reductions"])
    broadcasts = [
        (event.collective.output_bytes, times)
        for event, times in script(plan).calls()
        if event.collective is not None and event.collective.name == "broadcast"
    ]
    assert sum(times for _, times in broadcasts) == step["broadcasts"]
    assert {size for size, _ in broadcasts} == {ROTARY_BYTES}


@given(
    st.sampled_from(["smollm-135m", "gpt2", "llama-2-7b", "llama-3.1-405b"]),
    st.one_of(st.just(25 * MIB), st.integers(min_value=1, max_value=2**30)),
)
def test_buckets_straddle_blocks_as_a_walk_over_every_block_fills_them(
    model: str, bucket_bytes: int
) -> None:
    """The oracle adds gradient after gradient and closes where the size reaches the cap."""
    plan = _plan(model=model, strategy="ddp", gpus=2, bucket_bytes=bucket_bytes)
    assert _reduced(plan) == Counter(_filled(plan, bucket_bytes))


def _filled(plan: Plan, bucket_bytes: int) -> Iterator[int]:
    size, cap = 0, MIB if bucket_bytes == 25 * MIB else bucket_bytes
    for index in reversed(range(len(plan.units))):
        for _, parameters in plan.gradient_chunks(index):
            for parameter in parameters:
                size += 4 * parameter.elements
                if size >= cap:
                    yield size
                    size, cap = 0, bucket_bytes
    if size:
        yield size


def _reduced(plan: Plan) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for event, times in script(plan).calls():
        if event.collective is not None and event.collective.name == "all_reduce":
            sizes[event.collective.input_bytes] += times
    return sizes


def _plan(**keys: Any) -> Plan:
    question = resolve(load_spec(**keys))
    return plan_for(question, question.strategies[0], {})


def _keys(step: dict[str, Any], folder: Path) -> dict[str, Any]:
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "num_hidden_layers": step["blocks"],
                "hidden_size": 256,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "intermediate_size": 704,
                "vocab_size": 1001,
                "max_position_embeddings": 64,
                "tie_word_embeddings": step.get("tied", False),
            }
        )
    )
    return {
        "model": str(config),
        "strategy": "ddp",
        "gpus": 2,
        "sequence_length": 64,
        "micro_batch_size": 2,
        "activation_checkpointing": "none",
        "parameter_dtype": "fp32",
        "compute_dtype": "fp32",
    } | step["keys"]
