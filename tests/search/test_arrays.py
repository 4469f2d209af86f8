"""A plan priced among many is the plan priced alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer
from zeroplan.estimation.many import VERDICTS, Batches, Figures, figures, priced
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.records import replace
from zeroplan.spec.toml import load_spec

SECONDS = 1e-11
"""Of the step's seconds. A single estimate leaps over copies that are alike within 1e-12."""

OF_PARTS = 1e-10
"""The same for what is a difference of clocks."""

GPUS = ("h100-sxm5-80gb", "a100-sxm4-80gb")
LINKS = ("ib", "ethernet-25g", "ethernet-1g")


@st.composite
def structures(draw: st.DrawFn) -> dict[str, Any]:
    """Keys of a run on two nodes of a structure that any strategy may have."""
    strategies = (
        "ddp",
        "zero0",
        "zero1",
        "zero2",
        "zero3",
        "fsdp1",
        "fsdp2",
        "hsdp",
        "torch-zero1",
    )
    keys: dict[str, Any] = {
        "model": draw(st.sampled_from(["qwen3-0.6b", "llama-3.2-1b", "gpt2", "olmoe-1b-7b"])),
        "strategy": draw(st.sampled_from(strategies)),
        "gpus": draw(st.sampled_from([8, 16, 64])),
        "activation_checkpointing": draw(st.sampled_from(["none", "selective", "full", "every-2"])),
        "loss": draw(st.sampled_from(["fp32-logits", "fused-linear", "chunked"])),
        "compile": draw(st.booleans()),
        "backend": draw(st.sampled_from(["nccl", "nccl", "gloo"])),
        "gradient_clipping": draw(st.sampled_from([0.0, 1.0])),
    }
    if keys["strategy"] in ("fsdp2", "hsdp"):
        keys["reshard_after_forward"] = draw(st.booleans())
        keys["root_wrap"] = draw(st.sampled_from(["together", "separate"]))
        keys["offload_parameters"] = draw(st.sampled_from(["none", "none", "cpu"]))
        keys["all_reduce"] = draw(st.sampled_from(["every", "last"]))
    if keys["activation_checkpointing"] in ("full", "every-2"):
        keys["offload_activations"] = draw(st.booleans())
    if keys["strategy"] in ("zero2", "zero3"):
        keys["offload_optimizer"] = draw(st.sampled_from(["none", "none", "cpu"]))
    return keys


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """Batches with as many micro-steps as share a script."""
    count = draw(st.integers(min_value=1, max_value=4))
    several = draw(st.booleans())
    numbers = st.one_of(st.integers(4, 60), st.just(2048)) if several else st.integers(1, 3)
    steps = draw(st.lists(numbers, min_size=1, max_size=3 if several else 1))
    sizes = st.lists(st.sampled_from([1, 2, 3, 8]), min_size=count, max_size=count)
    lengths = st.lists(st.sampled_from([128, 512, 2048]), min_size=count, max_size=count)
    return Batches(
        micro_batch_size=np.array(draw(sizes)),
        sequence_length=np.array(draw(lengths)),
        gradient_accumulation_steps=np.array([[each] * count for each in steps]),
    )


def _questions(keys: dict[str, Any]) -> list[Question]:
    return [resolve(load_spec(**keys, gpu=gpu, link=link)) for gpu in GPUS for link in LINKS]


def _alone(question: Question, size: int, length: int, steps: int) -> StrategyEstimate:
    training = replace(
        question.run.training,
        micro_batch_size=size,
        sequence_length=length,
        gradient_accumulation_steps=steps,
    )
    return answer(replace(question, run=replace(question.run, training=training))).estimates[0]


def _assert_equal(found: Figures, batch: Batches, questions: list[Question]) -> None:
    for steps, place, machine in np.ndindex(found.verdict.shape):
        size, length, count = (
            int(each)
            for each in (
                batch.micro_batch_size[place],
                batch.sequence_length[place],
                batch.gradient_accumulation_steps[steps, place],
            )
        )
        alone = _alone(questions[machine], size, length, count)
        at = (steps, place, machine)
        for name in ("peak_allocated_bytes", "reserved_bytes", "device_bytes", "usable_bytes"):
            assert getattr(found, name)[at] == getattr(alone.memory, name), (name, at)
        assert VERDICTS[found.verdict[at]] in (alone.verdict, alone.memory.host_verdict)
        assert round(found.inter_node_wire_bytes[at]) == alone.communication.inter_node_wire_bytes
        step = alone.time.step_seconds or 0.0
        assert found.step_seconds[at] == pytest.approx(step, rel=SECONDS)
        for name in _parts():
            expected = getattr(alone.time, name)
            assert getattr(found, name)[at] == pytest.approx(expected, abs=OF_PARTS * step), (
                name,
                at,
            )
        for name in ("tokens_per_second_per_gpu", "model_flops_utilization"):
            expected = getattr(alone.time, name)
            assert getattr(found, name)[at] == pytest.approx(expected, rel=SECONDS), (name, at)


def _parts() -> tuple[str, ...]:
    kinds = ("low", "high", "compute", "communication", "exposed_communication")
    return tuple(f"{kind}_seconds" for kind in kinds)


def _check(keys: dict[str, Any], batch: Batches) -> None:
    try:
        questions = _questions(keys)
    except SpecError:
        return
    (found,) = figures([priced(questions, questions[0].strategies[0], batch)])
    _assert_equal(found, batch, questions)


@settings(max_examples=12, deadline=None)
@given(structures(), batches())
def test_a_plan_among_many_is_the_plan_alone(keys: dict[str, Any], batch: Batches) -> None:
    _check(keys, batch)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(structures(), batches())
def test_thousands_of_plans_among_many_are_the_plans_alone(
    keys: dict[str, Any], batch: Batches
) -> None:
    _check(keys, batch)


def test_what_a_micro_step_leaves_behind_adds_up() -> None:
    """ZeRO-3 keeps some gathered blocks where it may hold few, and its weights come quantised."""
    keys: dict[str, Any] = {
        "model": "qwen3-0.6b",
        "strategy": "zero3",
        "gpus": 2,
        "lora_rank": 16,
        "zero_quantized_weights": True,
        "stage3_max_live_parameters": 5_000_000,
        "stage3_max_reuse_distance": 1_000_000,
        "stage3_param_persistence_threshold": 10,
    }
    steps = np.array([[4], [5], [9]])
    batch = Batches(
        micro_batch_size=np.array([1]),
        sequence_length=np.array([128]),
        gradient_accumulation_steps=steps,
    )
    questions = [resolve(load_spec(**keys))]
    (found,) = figures([priced(questions, questions[0].strategies[0], batch)])
    assert len(set(found.peak_allocated_bytes.ravel() - found.peak_allocated_bytes[0, 0, 0])) == 3
    _assert_equal(found, batch, questions)
