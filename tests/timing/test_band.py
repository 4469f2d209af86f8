"""The band: as wide as the misses on sources that were not fitted, wider where prices are assumed."""

from typing import Any

import pytest

from zeroplan import estimate
from zeroplan.estimation.record import Time
from zeroplan.timing.band import FASTER, SLOWER


def test_where_prices_are_fitted_the_band_is_that_of_the_held_out_runs() -> None:
    low, step, high = _band("a100-sxm4-80gb")
    assert low / step == pytest.approx(1 - FASTER.value, abs=0.02)
    assert high / step == pytest.approx(1 + SLOWER.value, abs=0.02)


def test_an_assumed_gpu_has_a_wider_band() -> None:
    fitted, assumed = _band("a100-sxm4-80gb"), _band("mi300x")
    assert assumed[0] / assumed[1] < fitted[0] / fitted[1] - 0.03
    assert assumed[2] / assumed[1] > fitted[2] / fitted[1] + 0.03


def test_a_step_that_waits_for_its_host_has_a_wider_band() -> None:
    long, short = _band("a100-sxm4-80gb"), _band("a100-sxm4-80gb", sequence_length=128)
    assert short[2] / short[1] > long[2] / long[1] + 0.02


def test_links_between_nodes_widen_no_band_on_one_node() -> None:
    """How well Ethernet or InfiniBand is known says nothing of ranks that PCIe joins."""
    keys: dict[str, Any] = {"model": "smollm-135m", "strategy": "fsdp2", "gpus": 8}
    keys |= {"gpu": "a100-sxm4-80gb", "intra_link": "pcie3"}
    alone = [estimate(**keys, link=link).estimates[0].time for link in ("ethernet", "ib")]
    assert alone[0] == alone[1]
    assert (alone[0].exposed_communication_seconds or 0.0) > 0


def _band(gpu: str, sequence_length: int = 2**15) -> tuple[float, float, float]:
    found = estimate(
        model="smollm-135m",
        gpus=1,
        strategy="none",
        gpu=gpu,
        sequence_length=sequence_length,
        micro_batch_size=1,
    )
    time: Time = found.estimates[0].time
    return time.low_seconds or 0.0, time.step_seconds or 0.0, time.high_seconds or 0.0
