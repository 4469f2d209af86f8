"""Clocks are run for few of many plans, and for plans of several structures at once."""

from itertools import chain
from typing import Any

import numpy as np
import pytest

from zeroplan.estimation.many import Batches, Figures, Priced, figures, priced
from zeroplan.estimation.resolve import resolve
from zeroplan.records import fields
from zeroplan.search.select import races
from zeroplan.spec.toml import load_spec
from zeroplan.timing import many_clocks
from zeroplan.timing.many_parts import halves

GPUS = ("h100-sxm5-80gb", "a100-sxm4-80gb")
LINKS = ("ib", "ethernet-25g", "ethernet-1g")
STRATEGIES = ("ddp", "zero2", "zero3", "fsdp2", "hsdp")
PAIRS = [(size, length) for size in (1, 2, 8, 32, 64) for length in (256, 2048, 4096)]
"""Micro-batches and sequence lengths, from those that fit to those that do not."""
RELATIVE = 1e-11


def _priced(gpus: int, strategy: str, pairs: list[tuple[int, int]] = PAIRS, **keys: Any) -> Priced:
    """Return batches with 4 to 50 micro-steps on six machines."""
    questions = [
        resolve(
            load_spec(model="qwen3-0.6b", gpus=gpus, strategy=strategy, gpu=gpu, link=link, **keys)
        )
        for gpu in GPUS
        for link in LINKS
    ]
    sizes, lengths = (np.array(each) for each in zip(*pairs, strict=True))
    batches = Batches(
        micro_batch_size=sizes,
        sequence_length=lengths,
        gradient_accumulation_steps=np.array([[each] * len(pairs) for each in (4, 7, 50)]),
    )
    return priced(questions, questions[0].strategies[0], batches)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_fastest_of_every_race_is_timed(strategy: str) -> None:
    raced = _priced(16, strategy)
    (found,) = figures([raced], lambda memory: races(memory, tight=False))
    (every,) = figures([_priced(16, strategy)])
    for track in races(raced.memory, tight=False):
        speed = np.where(track, every.tokens_per_second_per_gpu, 0.0)
        best = speed.reshape(-1, speed.shape[-1]).max(axis=0)
        timed = np.nan_to_num(np.where(track, found.tokens_per_second_per_gpu, 0.0))
        assert timed.reshape(-1, speed.shape[-1]).max(axis=0) == pytest.approx(best, rel=RELATIVE)
    assert np.isnan(found.step_seconds).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_plans_on_other_numbers_of_gpus_are_what_they_are_alone(strategy: str) -> None:
    together = figures([_priced(gpus, strategy) for gpus in (16, 64, 128)])
    for gpus, found in zip((16, 64, 128), together, strict=True):
        (alone,) = figures([_priced(gpus, strategy)])
        _assert_same(found, alone)


@pytest.mark.parametrize(
    ("strategy", "ends"), [("fsdp2", 1), ("zero3", 3)], ids=["to the end", "of micro-steps"]
)
def test_plans_of_one_strategy_on_other_numbers_of_gpus_share_a_walk(
    strategy: str, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ZeRO-3 the optimizer's step takes one sub-group after the other, here 19, 5 and 3."""
    keys: dict[str, Any] = {"sub_group_size": 2_000_000} if strategy == "zero3" else {}
    several = [_priced(gpus, strategy, **keys) for gpus in (16, 64, 128)]
    expected = [*chain.from_iterable(figures([each]) for each in several)]
    passed = []
    run = many_clocks.ManyClocks.run

    def noted(self: Any, items: Any) -> None:
        passed.append(items)
        run(self, items)

    monkeypatch.setattr(many_clocks.ManyClocks, "run", noted)
    found = figures(several)
    heads, tails = zip(*(halves(each.runners.script) for each in several), strict=True)
    for halves_of_all, times in ((heads, 1), (tails, ends)):
        all_items = [half.items for half in halves_of_all]
        assert len([items for items in passed if items in all_items]) == times
    for one, other in zip(found, expected, strict=True):
        _assert_same(one, other)


@pytest.mark.parametrize(
    ("strategy", "offloaded"), [*((each, "none") for each in STRATEGIES), ("zero2", "cpu")]
)
def test_a_plan_that_is_left_to_run_alone_is_what_it_is_among_others(
    strategy: str, offloaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(1, 256), (8, 2048)]
    several = [_priced(gpus, strategy, pairs, offload_optimizer=offloaded) for gpus in (16, 64)]
    among = figures(several)
    monkeypatch.setattr(many_clocks, "PATIENCE", 1)
    monkeypatch.setattr(many_clocks, "STRAGGLERS", 10**6)
    for one, other in zip(figures(several), among, strict=True):
        _assert_same(one, other)


def _assert_same(one: Figures, other: Figures) -> None:
    """Every figure is the same, seconds but for rounding of a step's."""
    for entry in fields(Figures):
        found, expected = getattr(one, entry.name), getattr(other, entry.name)
        scale = other.step_seconds if entry.name.endswith("_seconds") else np.abs(expected)
        assert (np.abs(found - expected) <= RELATIVE * scale).all(), entry.name
