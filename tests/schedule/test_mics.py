"""MiCS, worked out by hand from mics.py and mics_utils.py of DeepSpeed 0.19.6.

Every parameter is gathered into a buffer of its own over the shard group; gradients are
reduce-scattered there in every micro-step, and their shards all-reduced across the groups in the
last one.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.schedule import script
from zeroplan.schedule.events import Collective
from zeroplan.schedule.plan import Plan

P = 3_922_176
"""Parameters of the small Llama: nine norms of 256 among them."""
MATRICES = P - 9 * 256
SETTINGS: dict[str, Any] = {
    "reduce_bucket_size": 2_000_000,
    "stage3_prefetch_bucket_size": 0,
    "stage3_param_persistence_threshold": 1000,
    "stage3_max_reuse_distance": 0,
    "mics_shard_size": 2,
}


def sent(plan: Plan) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """Sum calls, bytes in and bytes out by phase, name and group."""
    found: Counter[tuple[str, Collective]] = Counter()
    for event, times in script(plan).calls():
        if event.collective is not None:
            found[event.phase, event.collective] += times
    sums: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for (phase, call), times in found.items():
        key = phase, call.name, call.group.name
        count, before, after = sums.get(key, (0, 0, 0))
        more = int(call.input_bytes), int(call.output_bytes)
        sums[key] = count + times, before + times * more[0], after + times * more[1]
    return sums


@pytest.mark.parametrize("micro_steps", [1, 2, 5])
def test_what_is_sent_in_which_group(micro_steps: int, deepspeed_plan: Callable[..., Plan]) -> None:
    """30 matrices, each gathered by itself forward and backward; two buckets of gradients."""
    found = sent(
        deepspeed_plan(strategy="zero3", ranks=4, micro_steps=micro_steps, deepspeed=SETTINGS)
    )
    gathered = 30 * micro_steps, MATRICES * micro_steps, 2 * MATRICES * micro_steps
    assert found["forward", "all_gather", "shard"] == gathered
    assert found["backward", "all_gather", "shard"] == gathered
    reduced = 2 * micro_steps, 2 * P * micro_steps, P * micro_steps
    assert found["backward", "reduce_scatter", "shard"] == reduced
    assert found["backward", "all_reduce", "replicate"] == (2, P, P)


def test_prefetched_parameters_need_no_flat_buffer(deepspeed_plan: Callable[..., Plan]) -> None:
    """As many calls, but nothing in a buffer that is cut up."""
    settings = {**SETTINGS, "stage3_prefetch_bucket_size": 300_000}
    plan = deepspeed_plan(strategy="zero3", ranks=4, deepspeed=settings)
    categories = {c.category for event, _ in script(plan).calls() for c in event.changes}
    assert "all_gather_buffers" not in categories
    assert sent(plan)["forward", "all_gather", "shard"][0] < 30


def test_two_levels_gather_between_the_nodes_first(deepspeed_plan: Callable[..., Plan]) -> None:
    """Shards of 4 ranks on two nodes: half of every parameter crosses, then both halves meet."""
    settings = {**SETTINGS, "mics_shard_size": 4, "mics_hierarchical_params_gather": True}
    found = sent(deepspeed_plan(strategy="zero3", ranks=4, ranks_per_node=2, deepspeed=settings))
    assert found["forward", "all_gather", "inter"] == (30, MATRICES // 2, MATRICES)
    assert found["forward", "all_gather", "intra"] == (30, MATRICES, 2 * MATRICES)


def test_states_are_divided_by_the_shard_group() -> None:
    keys: dict[str, Any] = {"model": "llama-3.1-8b", "strategy": "zero3", "version": "0.19.6"}
    (group,) = estimate(**keys, gpus=64, mics_shard_size=8).estimates
    (alone,) = estimate(**keys, gpus=8).estimates
    assert group.memory.optimizer_bytes == alone.memory.optimizer_bytes
    assert {each.group for each in group.communication.collectives} == {"shard", "replicate"}


def test_an_older_version_is_noted() -> None:
    answer = estimate(model="llama-3.1-8b", strategy="zero3", gpus=8, version="0.18.3")
    assert any("sharding.deepspeed.version = 0.18.3 decides" in note for note in answer.notes)
