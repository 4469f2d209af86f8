"""DeepSpeed's schedules: laws that hold whatever the settings."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.memory.walk import peaks
from zeroplan.schedule import script
from zeroplan.schedule.deepspeed_common import FlatGroup
from zeroplan.schedule.events import Event, Item, Script
from zeroplan.schedule.plan import Plan

Planner = Callable[..., Plan]

SMALL = {"vocabulary": 300, "hidden": 32, "layers": 6, "heads": 2, "kv_heads": 1, "width": 80}
BUCKET = 2_000_000


def reductions(written: Script) -> int:
    """Count the calls that carry gradients."""
    return sum(times for e, times in written.calls() if e.collective and e.phase == "backward")


def running(items: tuple[Item, ...], total: float) -> float:
    """Add all changes up; nothing may be freed that is not there."""
    for item in items:
        if isinstance(item, Event):
            for change in item.changes:
                total += change.bytes
                assert total >= 0
        else:
            for _ in range(item.times):
                total = running(item.items, total)
    return total


@pytest.mark.parametrize("strategy", ["zero0", "zero1", "zero2", "zero3"])
@settings(max_examples=25, deadline=None)
@given(
    run=st.fixed_dictionaries(
        {
            "micro_steps": st.integers(1, 5),
            "ranks": st.integers(1, 9),
            "checkpointing": st.sampled_from(["none", "full", "reentrant"]),
        }
    ),
    chosen=st.fixed_dictionaries(
        {
            "reduce_bucket_size": st.integers(0, 120_000),
            "overlap_comm": st.sampled_from([None, False, True]),
            "contiguous_gradients": st.booleans(),
            "reduce_scatter": st.booleans(),
            "use_multi_rank_bucket_allreduce": st.booleans(),
            "round_robin_gradients": st.booleans(),
            "communication_data_type": st.sampled_from([None, "fp32"]),
            "grad_accum_dtype": st.sampled_from([None, "fp32"]),
            "sub_group_size": st.integers(1, 60_000),
            "stage3_prefetch_bucket_size": st.integers(0, 40_000),
            "stage3_max_live_parameters": st.integers(0, 200_000),
            "stage3_max_reuse_distance": st.integers(0, 200_000),
            "stage3_param_persistence_threshold": st.integers(0, 3000),
        }
    ),
)
def test_a_step_leaves_what_it_found(
    deepspeed_plan: Planner, strategy: str, run: dict[str, Any], chosen: dict[str, Any]
) -> None:
    shape = {**SMALL, "tokens": 8}
    written = script(deepspeed_plan(strategy=strategy, shape=shape, deepspeed=chosen, **run))
    resident = sum(change.bytes for change in written.resident)
    assert running(written.items, resident) == resident


@pytest.mark.parametrize(
    ("strategy", "times"), [("zero0", 1), ("zero1", 1), ("zero2", 5), ("zero3", 5)]
)
def test_divided_gradients_are_reduced_in_every_micro_step_others_once(
    deepspeed_plan: Planner, strategy: str, times: int
) -> None:
    chosen = {"reduce_bucket_size": BUCKET, "stage3_max_reuse_distance": 10**9}
    plans = [deepspeed_plan(strategy=strategy, micro_steps=n, deepspeed=chosen) for n in (1, 5)]
    one, five = (reductions(script(plan)) for plan in plans)
    assert five == times * one


@pytest.mark.parametrize("strategy", ["zero0", "zero1", "zero2", "zero3"])
def test_one_rank_sends_nothing(deepspeed_plan: Planner, strategy: str) -> None:
    written = script(deepspeed_plan(strategy=strategy, ranks=1))
    assert not [event for event, _ in written.calls() if event.collective]


def test_zero_2_sends_three_volumes_of_the_parameters_not_the_papers_two(
    deepspeed_plan: Planner,
) -> None:
    """All-reduce is twice the volume, and the parameters are gathered (issue 6463)."""
    plan = deepspeed_plan(ranks=4)
    parameters = 2 * sum(p.elements * times for p, times in plan.parameters)
    wire = sum(n * e.collective.wire_bytes for e, n in script(plan).calls() if e.collective)
    assert wire == pytest.approx(3 * parameters * 3 / 4, rel=1e-5)


def test_overlap_needs_a_second_bucket(deepspeed_plan: Planner) -> None:
    alone, overlapped = (
        peaks(script(deepspeed_plan(deepspeed={"reduce_bucket_size": BUCKET, "overlap_comm": o})))
        for o in (False, True)
    )
    more = overlapped["backward"].bytes - alone["backward"].bytes
    assert more == pytest.approx(2 * BUCKET, abs=512)


def test_the_bucket_of_zero_3_is_there_throughout(deepspeed_plan: Planner) -> None:
    """5e8 elements by default: 1 GB in bf16."""
    resident = script(deepspeed_plan(strategy="zero3")).resident
    buckets = sum(c.bytes for c in resident if c.category == "reduce_scatter_buffers")
    assert buckets == 1_000_000_000


@given(
    elements=st.lists(st.integers(1, 500), min_size=1, max_size=30).map(tuple),
    ranks=st.integers(1, 12),
    round_robin=st.booleans(),
)
def test_a_flat_group_gives_each_element_to_one_rank(
    elements: tuple[int, ...], ranks: int, round_robin: bool
) -> None:
    group = FlatGroup(elements=elements, ranks=ranks, round_robin=round_robin)
    assert group.shard * ranks >= sum(elements) > (group.shard - 2) * ranks
    owned, held = [0] * ranks, [0] * ranks
    for size, pieces in zip(elements, group.spans, strict=True):
        told_out = [
            (piece.rank + later, piece.elements) for piece in pieces for later in range(piece.ranks)
        ]
        assert sum(n for _, n in told_out) == size
        for rank, n in told_out:
            assert n > 0
            owned[rank] += n
            held[rank] += size
    assert max(owned) <= group.shard
    assert group.fullest_rank == held.index(max(held))
    assert sum(group.fullest_pieces) == owned[group.fullest_rank]


def test_the_fullest_rank_keeps_its_border_parameters_whole() -> None:
    """Each of three ranks owns 12 elements; the second parameter is cut in the middle."""
    group = FlatGroup(elements=(8, 8, 8, 12), ranks=3)
    assert group.shard == 12
    assert group.held_elements == {0: 16, 1: 16, 2: 12}
    assert group.fullest_rank == 0
