"""Laws that hold for every run: of states, of what is sent, of time and of the peak."""

from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.estimation import estimate
from zeroplan.estimation.answer import answer, plan_for
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.accounting import paper_state_bytes, paper_volume
from zeroplan.sharding.states import states
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.toml import load_spec

MODELS = st.sampled_from(["smollm-135m", "gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "llama-3.1-70b"])
STRATEGY = st.sampled_from(list(STRATEGIES.keys() - {"none"}))
RANKS = st.integers(min_value=1, max_value=128)
ADAM_BYTES = 16
"""Of parameter, gradient and Adam's states, of fp32 or of 16 bits with a master copy [B]."""


@given(MODELS, RANKS)
def test_each_stage_owns_no_more_than_the_one_before(model: str, ranks: int) -> None:
    """Up to padding: stage 2 pads all elements to 2 N together, stage 3 every parameter to N."""
    plans = [_plan(model, ranks, strategy) for strategy in ("ddp", "zero1", "zero2", "zero3")]
    padding = ADAM_BYTES * (2 + len(plans[0].workload.parameters))
    for before, after in pairwise(_owned(plan) for plan in plans):
        assert after <= before + padding


@given(MODELS, RANKS, st.sampled_from(["zero1", "zero2", "zero3", "fsdp1", "fsdp2"]))
def test_the_shares_make_up_the_whole(model: str, ranks: int, strategy: str) -> None:
    whole, share = _plan(model, 1, strategy), _plan(model, ranks, strategy)
    assert ranks * _owned(share) >= _owned(whole)


@given(MODELS, RANKS, RANKS, STRATEGY)
def test_more_gpus_never_own_more_each(model: str, few: int, more: int, strategy: str) -> None:
    assert _owned(_plan(model, few + more, strategy)) <= _owned(_plan(model, few, strategy))


@given(st.integers(min_value=0, max_value=10**13), RANKS)
def test_the_papers_accounting_orders_the_stages_too(parameters: int, ranks: int) -> None:
    rows = [STRATEGIES[name] for name in ("ddp", "zero1", "zero2", "zero3")]
    held = [paper_state_bytes(row, parameters, ranks) for row in rows]
    assert held == sorted(held, reverse=True)
    assert [paper_volume(row, parameters) for row in rows] == [
        times * parameters for times in (2, 2, 2, 3)
    ]


@given(
    st.sampled_from(["smollm-135m", "llama-3.1-70b"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([2, 3, 4, 16]),
    st.sampled_from(["fp32", "bf16"]),
)
def test_a_shard_group_within_a_node_sends_only_reduced_gradients_out(
    model: str, shard: int, nodes: int, reduce_dtype: str
) -> None:
    """2 (R - 1) / R of a rank's shard in the reduce dtype, for R copies on different nodes."""
    question = resolve(
        load_spec(
            model=model,
            gpus=shard * nodes,
            gpus_per_node=shard,
            strategy="hsdp",
            reduce_dtype=reduce_dtype,
        )
    )
    for event, _ in script(plan_for(question, question.strategies[0], {})).calls():
        call = event.collective
        if call is not None:
            assert (call.group.nodes > 1) == (call.name == "all_reduce")
    found = answer(question).estimates[0]
    owned = found.memory.parameters_bytes // 4
    itemsize = {"fp32": 4, "bf16": 2}[reduce_dtype]
    sent = 2 * (nodes - 1) / nodes * owned * itemsize
    assert found.communication.inter_node_wire_bytes == pytest.approx(sent, abs=1)


@settings(max_examples=25)
@given(STRATEGY, st.floats(min_value=0.001, max_value=1), st.sampled_from([128, 4096]))
def test_a_slower_link_never_makes_a_step_faster(
    strategy: str, factor: float, sequence_length: int
) -> None:
    keys = {"model": "llama-3.2-1b", "gpus": 16, "sequence_length": sequence_length}
    question = resolve(load_spec(strategy=strategy, **keys))
    slow = replace(
        question.wires, node_bytes_per_second=factor * question.wires.node_bytes_per_second
    )
    seconds = [
        answer(each).estimates[0].time.step_seconds or 0.0
        for each in (question, replace(question, wires=slow))
    ]
    assert seconds[0] <= seconds[1] * (1 + 1e-12)


@settings(max_examples=25)
@given(
    STRATEGY,
    st.sampled_from([1, 8, 32]),
    st.sampled_from(["nccl", "gloo"]),
    st.sampled_from([64, 2048]),
)
def test_a_step_takes_no_less_than_any_of_its_parts(
    strategy: str, gpus: int, backend: str, sequence_length: int
) -> None:
    time = _one(
        model="llama-3.2-1b",
        gpus=gpus,
        strategy=strategy,
        backend=backend,
        sequence_length=sequence_length,
    ).time
    assert time.step_seconds is not None
    assert time.compute_seconds is not None
    assert time.exposed_communication_seconds is not None
    assert time.step_seconds >= time.compute_seconds >= (time.optimizer_seconds or 0)
    assert time.step_seconds >= time.exposed_communication_seconds >= 0
    assert (time.low_seconds or 0) <= time.step_seconds <= (time.high_seconds or 0)


@settings(max_examples=25)
@given(STRATEGY, st.integers(min_value=1, max_value=8), st.sampled_from(["none", "full"]))
def test_doubling_the_micro_batch_never_lowers_the_peak(
    strategy: str, sequences: int, checkpointing: str
) -> None:
    small, large = (
        asdict(
            _one(
                model="smollm-135m",
                gpus=8,
                strategy=strategy,
                micro_batch_size=size,
                activation_checkpointing=checkpointing,
                sequence_length=512,
            ).memory.peak_by_phase_bytes
        )
        for size in (sequences, 2 * sequences)
    )
    assert all(small[phase] <= large[phase] for phase in small)


@settings(max_examples=25)
@given(MODELS, STRATEGY, st.sampled_from([1, 8, 16]), st.integers(min_value=1, max_value=4))
def test_the_breakdown_sums_to_the_peak(
    model: str, strategy: str, gpus: int, micro_steps: int
) -> None:
    memory = _one(
        model=model, gpus=gpus, strategy=strategy, gradient_accumulation_steps=micro_steps
    ).memory
    parts = asdict(memory.peak_breakdown_bytes)
    assert sum(parts.values()) == memory.peak_allocated_bytes
    assert memory.peak_allocated_bytes - parts["workspaces"] == memory.peak_tensor_bytes
    assert memory.peak_tensor_bytes == max(asdict(memory.peak_by_phase_bytes).values())
    assert min(parts.values()) >= 0


def _one(**keys: Any) -> StrategyEstimate:
    return estimate(**keys).estimates[0]


def _plan(model: str, ranks: int, strategy: str) -> Plan:
    """Form a plan for one node of any size."""
    keys = {"model": model, "gpus": ranks, "gpus_per_node": ranks, "strategy": strategy}
    question = resolve(load_spec(sequence_length=1, **keys))
    return plan_for(question, question.strategies[0], {})


def _owned(plan: Plan) -> int:
    """Bytes of the three states that a rank owns, of HSDP too in its one group [B]."""
    owned = states(plan.row, plan.parameters, plan.dtypes, plan.groups.shard.ranks)
    return int(owned.parameters_bytes + owned.gradients_bytes + (owned.optimizer_bytes or 0))
