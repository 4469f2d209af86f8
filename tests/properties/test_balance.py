"""For every kind of model: nothing goes below nothing, and a step ends where it began."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.schedule.events import Event, Item, Script
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.presets import list_presets
from zeroplan.spec.toml import load_spec

FILE = Path(__file__).parents[1] / "spec" / "configs" / "towers_and_mixers.json"
TOWERS = json.loads(FILE.read_text())["models"]
"""What presets rarely have: several towers, cross-attention, mixers."""

KEYS = st.fixed_dictionaries(
    {
        "activation_checkpointing": st.sampled_from(["none", "full", "selective", "every-2"]),
        "gradient_accumulation_steps": st.integers(1, 3),
        "synchronize_gradients": st.sampled_from(["every", "last"]),
        "loss": st.sampled_from(
            ["fp32-logits", "model-dtype-logits", "compiled", "chunked", "fused-linear"]
        ),
        "norm": st.sampled_from(["fused", "eager"]),
        "attention": st.sampled_from(["flash", "math"]),
        "optimizer": st.sampled_from(["adamw", "sgd", "none"]),
        "root_wrap": st.sampled_from(["together", "separate"]),
        "keep_logits": st.booleans(),
        "gradient_as_bucket_view": st.booleans(),
        "unshard_in_backward": st.booleans(),
    }
)


@settings(max_examples=60)
@given(st.sampled_from(list_presets()), st.sampled_from(sorted(STRATEGIES)), KEYS)
def test_presets_end_where_they_began(model: str, strategy: str, keys: dict[str, Any]) -> None:
    _assert_balanced(_script(model, strategy, keys))


@pytest.mark.parametrize("strategy", ["none", "ddp", "zero2", "zero3", "fsdp1", "fsdp2"])
@pytest.mark.parametrize("entry", TOWERS, ids=lambda entry: entry["model"])
def test_towers_and_mixers_end_where_they_began(
    entry: dict[str, Any], strategy: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(entry["config"]))
    for checkpointing in ("none", "full"):
        keys = {"activation_checkpointing": checkpointing}
        _assert_balanced(_script(str(path), strategy, keys))


@pytest.mark.parametrize("micro_steps", [1, 2, 5])
def test_a_shard_that_no_backward_gathers_from_ends_where_it_began(micro_steps: int) -> None:
    keys = {
        "reshard_after_forward": 2,
        "root_wrap": "separate",
        "unshard_in_backward": False,
        "gradient_accumulation_steps": micro_steps,
    }
    _assert_balanced(_script("llama-3.2-1b", "fsdp2", keys))


def test_gradients_that_outlive_the_step_stay_views_of_their_buckets() -> None:
    keys = {
        "gradient_as_bucket_view": True,
        "optimizer": "none",
        "synchronize_gradients": "last",
        "gradient_accumulation_steps": 3,
    }
    _assert_balanced(_script("gpt2", "ddp", keys))


PARTS = st.fixed_dictionaries(
    {
        "lora_rank": st.sampled_from([0, 8]),
        "trainable": st.sampled_from(["last-1", "last-2,norm", "blocks", "embedding,head"]),
        "activation_checkpointing": st.sampled_from(["none", "full", "selective", "every-2"]),
        "gradient_accumulation_steps": st.integers(1, 3),
        "synchronize_gradients": st.sampled_from(["every", "last"]),
        "root_wrap": st.sampled_from(["together", "separate"]),
        "reshard_after_forward": st.sampled_from([True, False]),
        "use_orig_params": st.booleans(),
        "stage3_max_reuse_distance": st.sampled_from([0, 10**9]),
    }
)


@settings(max_examples=60)
@given(
    st.sampled_from(["smollm-135m", "gpt2", "t5-small", "falcon-7b", "qwen3-30b-a3b"]),
    st.sampled_from(sorted(STRATEGIES)),
    PARTS,
)
def test_partly_trained_models_end_where_they_began(
    model: str, strategy: str, keys: dict[str, Any]
) -> None:
    _assert_balanced(_script(model, strategy, keys))


MIXTURE = {"stage3_max_reuse_distance": 0, "activation_checkpointing": "full"}


@pytest.mark.parametrize(
    ("model", "strategy", "keys"),
    [
        pytest.param("mamba", "ddp", {"lora_rank": 8}, id="adapters that read views"),
        pytest.param("gemma-3-4b", "fsdp1", {"trainable": "norm"}, id="tied views of a flat root"),
        pytest.param(
            "Qwen3.5", "fsdp1", {"lora_rank": 8, "lora_targets": "attention"}, id="frozen blocks"
        ),
        pytest.param(
            "llama-3.1-8b",
            "fsdp1",
            {"trainable": "head", "root_wrap": "separate"},
            id="embeddings wrapped by themselves",
        ),
        pytest.param(
            "llama-3.2-1b",
            "fsdp2",
            {"trainable": "last-2", "reshard_after_forward": 2},
            id="parts of frozen blocks",
        ),
        pytest.param(
            "llama-3.2-1b",
            "fsdp2",
            {"trainable": "last-1", "reshard_after_forward": False},
            id="frozen blocks that stay",
        ),
        pytest.param("whisper", "fsdp2", {"optimizer_in_backward": True}, id="frozen table"),
        pytest.param("whisper", "fsdp2", {"offload_parameters": "cpu"}, id="offloaded table"),
        pytest.param("whisper", "ddp", {"trainable": "last-1"}, id="frozen encoder"),
        pytest.param("t5-small", "zero3", {"lora_rank": 8}, id="frozen position bias"),
        pytest.param("t5-small", "zero3", {"trainable": "blocks"}, id="sum behind a frozen table"),
        pytest.param("mixtral-8x7b", "zero3", MIXTURE, id="experts of one module"),
        pytest.param(
            "mixtral-8x7b", "zero3", {**MIXTURE, "experts": "loop"}, id="loop in one module"
        ),
        pytest.param("gpt2", "zero3", {"offload_parameters": "cpu"}, id="persistent from the host"),
        pytest.param(
            "vit-base",
            "zero3",
            {"trainable": "norm", "zero_hpz_partition_size": 2, "zero_quantized_weights": True},
            id="secondary shards of a group in flight",
        ),
    ],
)
def test_what_meets_ends_where_it_began(
    model: str, strategy: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    towers = [each for each in TOWERS if model in each["model"]]
    if towers:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(towers[0]["config"]))
        model = str(path)
    _assert_balanced(_script(model, strategy, keys))


def _script(model: str, strategy: str, keys: dict[str, Any]) -> Script:
    gpus = 1 if strategy == "none" else 8
    question = resolve(
        load_spec(model=model, strategy=strategy, gpus=gpus, sequence_length=64, **keys)
    )
    return script(plan_for(question, question.strategies[0], {}))


def _assert_balanced(step: Script) -> None:
    """Hold categories apart: one that is too low hides behind one that is too high."""
    live: Counter[str] = Counter()
    for change in step.resident:
        live[change.category] += int(change.bytes)
    start, lowest = Counter(live), Counter(live)
    for event in _unrolled(step.items):
        for change in event.changes:
            live[change.category] += int(change.bytes)
            lowest[change.category] = min(lowest[change.category], live[change.category])
    assert {name: size for name, size in lowest.items() if size < 0} == {}
    assert {name: size - start[name] for name, size in live.items() if size != start[name]} == {}


def _unrolled(items: Iterable[Item]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, Event):
            yield item
        else:
            for _ in range(item.times):
                yield from _unrolled(item.items)
