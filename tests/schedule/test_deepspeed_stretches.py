"""DeepSpeed's schedules tell equal blocks once; each block written for itself gives the same."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from zeroplan.compute.gpu import gpu_price
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.memory.walk import peaks
from zeroplan.schedule import script
from zeroplan.schedule.events import Event, Item, Script
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.stretches import Stretch
from zeroplan.spec.models import architecture_of
from zeroplan.spec.toml import load_spec
from zeroplan.timing.walk import walk

RELATIVE = 1e-12
BLOCK = 46_208
"""Elements of a block of the model below."""
SECONDS = (
    "step_seconds",
    "compute_seconds",
    "optimizer_seconds",
    "communication_seconds",
    "matmul_seconds",
)


def up_to(blocks: int) -> st.SearchStrategy[int]:
    """Sizes that matter within a block, or across several [elements]."""
    return st.one_of(st.integers(0, 2 * BLOCK), st.integers(0, blocks * BLOCK))


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """Keys of a run, with any of DeepSpeed's settings."""
    checkpointing = draw(st.sampled_from(["none", "full", "selective", "every-2", "every-3"]))
    gpus, secondary = draw(st.sampled_from([(1, 1), (3, 1), (3, 3), (16, 1), (16, 4)]))
    keys: dict[str, Any] = {
        "strategy": draw(st.sampled_from(["zero0", "zero1", "zero2", "zero3"])),
        "blocks": draw(st.integers(1, 24)),
        "gpus": gpus,
        "zero_hpz_partition_size": secondary,
        "gradient_accumulation_steps": draw(st.integers(1, 5)),
        "activation_checkpointing": checkpointing,
        "checkpoint_reentrant": checkpointing != "selective" and draw(st.booleans()),
        "reduce_bucket_size": draw(up_to(30)),
        "overlap_comm": draw(st.booleans()),
        "contiguous_gradients": draw(st.booleans()),
        "zero_quantized_weights": draw(st.booleans()),
        "zero_quantized_gradients": draw(st.booleans()),
        "use_multi_rank_bucket_allreduce": draw(st.booleans()),
        "round_robin_gradients": draw(st.booleans()),
        "sub_group_size": draw(st.integers(1, 4 * BLOCK)),
        "stage3_prefetch_bucket_size": draw(up_to(3)),
        "stage3_max_live_parameters": draw(up_to(30)),
        "stage3_max_reuse_distance": draw(up_to(60)),
        "stage3_param_persistence_threshold": draw(st.sampled_from([0, 64, 5000])),
    }
    keys["reduce_scatter"] = keys["zero_quantized_gradients"] or draw(st.booleans())
    for key in ("grad_accum_dtype", "communication_data_type"):
        if draw(st.booleans()):
            keys[key] = "fp32"
    return keys


@settings(max_examples=150)
@given(runs())
def test_blocks_told_once_give_what_each_written_out_gives(keys: dict[str, Any]) -> None:
    question = _question(keys)
    plan = plan_for(question, question.strategies[0], {})
    try:
        once = script(plan)
    except SpecError:  # a part that qwZ cannot quantise
        reject()
    each = script(_written_out(plan))
    assert once.resident == each.resident
    assert _calls(once) == _calls(each)
    assert _heights(once) == _heights(each)
    price = gpu_price(question.gpu, "bf16")
    told, plain = (walk(step, price, question.wires) for step in (once, each))
    for name in SECONDS:
        assert getattr(told, name) == pytest.approx(getattr(plain, name), rel=RELATIVE)


@pytest.mark.parametrize("strategy", ["zero0", "zero1", "zero2", "zero3"])
def test_ten_times_the_blocks_take_hardly_more_events(strategy: str) -> None:
    """Also where the bucket is cut alike in every other block only."""
    few, many = (
        _events(script(_plan(strategy=strategy, blocks=blocks, gpus=3))) for blocks in (20, 200)
    )
    assert many <= 1.1 * few


def _plan(**keys: Any) -> Plan:
    reach = {
        "reduce_bucket_size": BLOCK // 2,
        "stage3_prefetch_bucket_size": BLOCK // 4,
        "stage3_max_live_parameters": 2 * BLOCK,
        "stage3_max_reuse_distance": 2 * BLOCK,
    }
    question = _question({**reach, **keys})
    return plan_for(question, question.strategies[0], {})


def _written_out(plan: Plan) -> Plan:
    """Let every unit be a stretch of its own."""
    alone = replace(plan)
    units = tuple(Stretch((index,), 1) for index in range(len(plan.units)))
    object.__setattr__(alone, "stretches", units)
    return alone


def _calls(step: Script) -> Counter[tuple[object, ...]]:
    """Count events by what they send, and bytes by what comes and goes."""
    found: Counter[tuple[object, ...]] = Counter()
    for event, times in step.calls():
        if event.collective is not None:
            found[event.phase, event.stream, event.collective] += times
        found["copied", event.phase, event.stream] += times * event.traffic_bytes
        for change in event.changes:
            found[event.phase, change.category, change.bytes > 0] += times * change.bytes
    return found


def _heights(step: Script) -> dict[str, tuple[object, ...]]:
    """Return by phase how high it goes, of what, and in which block."""
    return {phase: (peak.bytes, peak.breakdown, peak.block) for phase, peak in peaks(step).items()}


def _events(step: Script) -> int:
    def count(items: tuple[Item, ...]) -> int:
        return sum(1 if isinstance(item, Event) else count(item.items) for item in items)

    return count(step.items)


def _question(keys: dict[str, Any]) -> Question:
    rest = dict(keys)
    config = {
        "model_type": "llama",
        "num_hidden_layers": rest.pop("blocks"),
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 176,
        "vocab_size": 1001,
    }
    run = load_spec(model="smollm-135m", gpus_per_node=8, link="ib-hdr200", **rest)
    return replace(resolve(run), architecture=architecture_of(config, "test", "toy"))
