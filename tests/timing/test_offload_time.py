"""The time of what leaves the GPU is never free, and is told apart from communication."""

from typing import Any

import pytest

from zeroplan.compute.offload import FUSED, PINNED, PLAIN
from zeroplan.estimation import estimate
from zeroplan.estimation.record import Time

ASKED: dict[str, Any] = {
    "model": "pythia-1.4b",
    "gpus": 8,
    "gpu": "a100-sxm4-80gb",
    "sequence_length": 512,
}
PARAMETERS = 1_414_647_808
PCIE = 31.5e9


def time(**keys: Any) -> Time:
    (found,) = estimate(**ASKED | keys).estimates
    return found.time


def test_without_offloading_nothing_is_spent_on_it() -> None:
    found = time(strategy="fsdp2")
    assert found.offload_seconds == found.exposed_offload_seconds == 0


def test_fsdp2_copies_shards_twice_and_gradients_once_and_updates_on_the_cpu() -> None:
    """An eighth of the parameters, 4 bytes each; the root group is not gathered again."""
    found = time(strategy="fsdp2", offload_parameters="cpu", optimizer_implementation="fused")
    update = PARAMETERS * 28 / FUSED.value
    copies = PARAMETERS / 8 * 4 / (PCIE * PINNED.value)
    assert found.optimizer_seconds == pytest.approx(update, rel=0.01)
    assert 2 * copies < (found.offload_seconds or 0) - update < 3 * copies


def test_an_update_that_is_not_fused_takes_longer() -> None:
    keys: dict[str, Any] = {"strategy": "fsdp2", "offload_parameters": "cpu"}
    plain, fused = time(**keys), time(**keys, optimizer_implementation="fused")
    ratio = (plain.optimizer_seconds or 0) / (fused.optimizer_seconds or 1)
    assert ratio == pytest.approx(FUSED.value / PLAIN.value, rel=0.01)


def test_pageable_copies_are_slower_and_waited_for() -> None:
    keys: dict[str, Any] = {"strategy": "fsdp2", "offload_parameters": "cpu"}
    pinned, pageable = time(**keys), time(**keys, offload_pin_memory=False)
    assert (pageable.offload_seconds or 0) > (pinned.offload_seconds or 0)
    assert (pageable.exposed_offload_seconds or 0) > (pinned.exposed_offload_seconds or 0)


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "zero1", "offload_optimizer": "cpu"},
        {"strategy": "zero2", "offload_optimizer": "cpu", "gradient_accumulation_steps": 3},
        {"strategy": "zero3", "offload_optimizer": "cpu", "offload_parameters": "cpu"},
        {"strategy": "zero3", "offload_optimizer": "nvme", "offload_parameters": "nvme"},
        {"strategy": "fsdp1", "offload_parameters": "cpu"},
        {"strategy": "fsdp2", "offload_parameters": "cpu"},
        {"strategy": "hsdp", "shard_size": 4, "offload_parameters": "cpu"},
    ],
    ids=lambda keys: f"{keys['strategy']} {keys.get('offload_optimizer', '')}",
)
def test_no_more_is_waited_for_than_is_copied_and_updated(keys: dict[str, Any]) -> None:
    found = time(**keys)
    offload = found.exposed_offload_seconds or 0.0
    communication = found.exposed_communication_seconds or 0.0
    assert 0 < offload <= (found.offload_seconds or 0.0) + 1e-9
    assert communication >= -1e-9


def test_the_band_widens_with_what_offloading_adds() -> None:
    found, plain = time(strategy="fsdp2", offload_parameters="cpu"), time(strategy="fsdp2")
    width = (found.high_seconds or 0) - (found.low_seconds or 0)
    assert width / (found.step_seconds or 1) > 1.5 * (
        ((plain.high_seconds or 0) - (plain.low_seconds or 0)) / (plain.step_seconds or 1)
    )


@pytest.mark.parametrize("model", ["gpt-oss-20b", "mixtral-8x7b"])
def test_waiting_for_the_host_is_never_less_than_nothing(model: str) -> None:
    """A copy delays kernels past a collective that would have slowed them down."""
    for strategy in ("fsdp2", "hsdp", "zero3"):
        keys = {"model": model, "strategy": strategy, "offload_activations": True}
        assert (time(**keys).exposed_offload_seconds or 0) >= 0
