"""What is written down and what it says stay small and finite, however many the ranks are."""

from math import isfinite
from typing import Any, get_args

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.rows import plain
from zeroplan.schedule import script
from zeroplan.spec.toml import load_spec
from zeroplan.spec.words import Strategy

STRATEGIES = [name for name in get_args(Strategy) if name != "none"]
MORE: tuple[dict[str, Any], ...] = (
    {"strategy": "zero1", "use_multi_rank_bucket_allreduce": False, "reduce_bucket_size": 10**9},
    {"strategy": "zero2", "use_multi_rank_bucket_allreduce": False, "reduce_bucket_size": 10**9},
    {"strategy": "torch-zero1", "parameters_as_bucket_view": True},
)


def _events(**keys: Any) -> int:
    question = resolve(load_spec(**keys))
    return sum(1 for _ in script(plan_for(question, question.strategies[0], {})).calls())


@pytest.mark.parametrize("asked", [*({"strategy": name} for name in STRATEGIES), *MORE])
def test_a_step_on_100000_ranks_is_as_short_as_one_on_4096(asked: dict[str, Any]) -> None:
    """Where ranks own parts of one parameter each, more of them only cut it finer."""
    few, many = (_events(model="1b", gpus=gpus, **asked) for gpus in (4096, 100_000))
    assert many <= 1.1 * few


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trillion_parameters_on_100000_gpus_have_finite_figures(strategy: str) -> None:
    answer = estimate(model="1000b", gpus=100_000, strategy=strategy)
    (found,) = answer.estimates
    assert answer.total_parameters == pytest.approx(1e12, rel=0.01)
    for record in (found.memory, found.communication, found.time):
        for figure in plain(record).values():
            if isinstance(figure, int | float):
                assert isfinite(figure)
                assert figure >= 0 or figure == found.memory.headroom_bytes
    assert 0 < (found.time.model_flops_utilization or 0) < 1


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_owners_that_get_equal_parts_are_told_once_and_counted_each(strategy: str) -> None:
    """One reduce to each of 512 ranks of a bucket that holds the model, and one all-reduce."""
    asked: dict[str, Any] = {"model": "1b", "gpus": 512, "strategy": strategy}
    apart: dict[str, Any] = {"use_multi_rank_bucket_allreduce": False, "reduce_bucket_size": 10**10}
    calls = estimate(**asked, **apart).estimates[0].communication.collectives
    (reduced,) = [call for call in calls if call.name == "reduce"]
    (together,) = [
        call
        for call in estimate(**asked, reduce_bucket_size=10**10)
        .estimates[0]
        .communication.collectives
        if call.name == "all_reduce" and call.phase == "backward"
    ]
    assert reduced.count == 512
    assert reduced.input_bytes == together.input_bytes
