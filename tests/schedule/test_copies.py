"""Copies beside the model: a running average and a frozen reference."""

from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.record import StrategyEstimate

PARAMETERS = 8_030_261_248
"""Of Llama 3.1 8B."""


def _one(**keys: Any) -> StrategyEstimate:
    return estimate(model="llama-3.1-8b", gpus=8, **keys).estimates[0]


@pytest.mark.parametrize(
    ("strategy", "ema", "per_parameter"),
    [("ddp", "fp32", 4), ("ddp", "bf16", 2), ("fsdp2", "fp32", 4 / 8), ("zero3", "bf16", 2 / 8)],
)
def test_an_average_is_held_and_sharded_as_the_parameters_are(
    strategy: str, ema: str, per_parameter: float
) -> None:
    plain, averaged = _one(strategy=strategy), _one(strategy=strategy, ema=ema)
    added = averaged.memory.parameters_bytes - plain.memory.parameters_bytes
    assert added == pytest.approx(per_parameter * PARAMETERS, rel=1e-3)
    peaks = averaged.memory.peak_tensor_bytes - plain.memory.peak_tensor_bytes
    assert peaks == added
    assert averaged.communication == plain.communication


@pytest.mark.parametrize(
    ("strategy", "per_parameter"), [("ddp", 2), ("zero2", 2), ("zero0", 2), ("fsdp2", 2 / 8)]
)
def test_a_reference_is_stored_in_the_compute_dtype(strategy: str, per_parameter: float) -> None:
    plain, paired = _one(strategy=strategy), _one(strategy=strategy, reference_model=True)
    added = paired.memory.parameters_bytes - plain.memory.parameters_bytes
    assert added == pytest.approx(per_parameter * PARAMETERS, rel=1e-3)


def test_a_reference_costs_a_forward_and_its_gathers() -> None:
    """32 blocks gathered once more; its root, which no backward reshards, never again."""
    plain, paired = _one(strategy="fsdp2"), _one(strategy="fsdp2", reference_model=True)

    def gathers(row: StrategyEstimate) -> int:
        calls = row.communication.collectives
        return next(c.count for c in calls if (c.name, c.phase) == ("all_gather", "forward"))

    assert gathers(paired) - gathers(plain) == 32
    assert paired.time.compute_seconds is not None
    assert plain.time.compute_seconds is not None
    share = paired.time.compute_seconds / plain.time.compute_seconds - 1
    assert 0.15 < share < 0.35  # a forward of a step of four, checkpointed


@pytest.mark.parametrize("strategy", ["fsdp1", "zero3"])
def test_a_reference_that_is_not_modelled_is_refused(strategy: str) -> None:
    with pytest.raises(SpecError, match="reference_model is not modelled where FSDP1 or ZeRO-3"):
        _one(strategy=strategy, reference_model=True)


def test_a_comparison_leaves_it_out_and_says_so() -> None:
    answer = estimate(model="llama-3.1-8b", gpus=8, reference_model=True)
    assert [row.strategy for row in answer.estimates] == ["ddp", "zero1", "zero2", "fsdp2"]
    assert any(note.startswith("zero3 left out: training.reference_model") for note in answer.notes)
