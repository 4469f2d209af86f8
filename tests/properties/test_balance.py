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
