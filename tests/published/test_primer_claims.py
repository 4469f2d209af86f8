"""What primers on data parallelism and ZeRO tell beginners, and where that is loose."""

import subprocess
import sys
from pathlib import Path

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.record import Memory
from zeroplan.sharding.accounting import paper_state_bytes
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.run import Strategy
from zeroplan.units import GB

pytestmark = pytest.mark.published

MANY = 10**9
"""Ranks enough for anything divided among them to vanish. [count]"""


def test_40_gb_of_state_on_each_of_8_gpus_is_320_gb_under_plain_data_parallelism() -> None:
    parameters = 2_500_000_000
    everywhere = 8 * paper_state_bytes(STRATEGIES["ddp"], parameters, 8)
    once = 8 * paper_state_bytes(STRATEGIES["zero3"], parameters, 8)
    assert everywhere == 320 * GB
    assert once == 40 * GB


def test_adams_states_are_twice_the_fp32_parameters() -> None:
    memory = estimate(model="llama-3.1-8b", gpus=8, strategy="ddp").estimates[0].memory
    assert memory.optimizer_bytes == 2 * memory.parameters_bytes


@pytest.mark.parametrize(("strategy", "times"), [("zero1", 4), ("zero2", 8)])
def test_stages_1_and_2_save_4_and_8_times_of_all_states_at_best(
    strategy: Strategy, times: int
) -> None:
    """The primer says the optimizer's states, or gradients too; those alone fall N-fold."""
    whole = paper_state_bytes(STRATEGIES["ddp"], 1, MANY)
    assert whole / paper_state_bytes(STRATEGIES[strategy], 1, MANY) == pytest.approx(times)
    for ranks in (8, 64, 1024):
        assert whole / paper_state_bytes(STRATEGIES[strategy], 1, ranks) < times


def test_stage_3_saves_n_fold_in_states_but_the_peak_stands_on_a_floor() -> None:
    """The gathered blocks, their gradients, the activations and the loss stay as they are."""
    few, many = _memory("llama-3.1-8b", 64), _memory("llama-3.1-8b", 512)
    assert _states(few) / _states(many) == pytest.approx(8, rel=1e-3)
    assert few.peak_tensor_bytes / many.peak_tensor_bytes < 1.2
    assert _floor(few) == pytest.approx(_floor(many), rel=1e-3)
    assert _floor(many) > 20 * _states(many)


def test_no_number_of_24_gb_gpus_trains_a_trillion_parameters() -> None:
    """One block of 170 is 11.7 GB when gathered in bf16, and three are alive in FSDP2's forward.

    (In 128 blocks it would be 15.6 GB.) Only a finer wrapping helps. Past some thousand GPUs the
    peak even grows: small tensors have fewer rows than there are ranks, and each rank pads one.
    """
    block = 2 * 1e12 / 170
    for gpus in (8, 64, 512, 4096, 32_768):
        answer = estimate(model="1t", gpus=gpus, gpu="rtx-4090", strategy="fsdp2").estimates[0]
        assert answer.verdict == "does_not_fit"
        assert answer.memory.peak_tensor_bytes > 3 * block > 24 * GB


def _memory(model: str, gpus: int) -> Memory:
    return estimate(model=model, gpus=gpus, strategy="fsdp2").estimates[0].memory


def _floor(memory: Memory) -> int:
    """What lives at the peak besides the divided states [B]."""
    live = memory.peak_breakdown_bytes
    return memory.peak_tensor_bytes - live.parameters - live.gradients - live.optimizer


def _states(memory: Memory) -> int:
    return memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes


ETHERNET = ("ethernet-1g", "ethernet-10g", "ethernet-25g", "ethernet-100g", "ib-hdr200")


def _waiting(strategy: Strategy, link: str, sequences: int, gpus: int = 64) -> float:
    time = (
        estimate(
            model="llama-3.1-8b",
            gpu="a100-sxm4-80gb",
            gpus=gpus,
            gpus_per_node=8,
            link=link,
            strategy=strategy,
            micro_batch_size=sequences,
        )
        .estimates[0]
        .time
    )
    assert time.exposed_communication_seconds is not None
    assert time.step_seconds is not None
    return time.exposed_communication_seconds / time.step_seconds


@pytest.mark.parametrize("strategy", ["zero3", "fsdp2"])
def test_on_ethernet_gpus_wait_nine_tenths_of_the_time_with_few_tokens_each(
    strategy: Strategy,
) -> None:
    """One sequence of 4,096 tokens per GPU; docs/ethernet.md has the whole table."""
    shares = [_waiting(strategy, link, 1) for link in ETHERNET]
    assert shares == sorted(shares, reverse=True)
    assert all(share > 0.9 for share in shares[:3])
    assert 0.7 < shares[3] < 0.9
    assert shares[4] < 0.1


@pytest.mark.parametrize("strategy", ["zero3", "fsdp2"])
def test_more_tokens_per_gpu_end_the_wait_and_more_gpus_do_not(strategy: Strategy) -> None:
    shares = [_waiting(strategy, "ethernet-10g", sequences) for sequences in (1, 8, 32)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert 0.5 < shares[1] < 0.85
    assert shares[2] < 0.35
    few, many = (_waiting(strategy, "ethernet-10g", 8, gpus) for gpus in (16, 256))
    assert many == pytest.approx(few, abs=0.04)


def test_the_wait_on_ethernet_is_what_the_wire_takes() -> None:
    """By hand: of 2P gathered twice, the root but once, and 4P reduced a node sends nearly all."""
    found = estimate(
        model="llama-3.1-8b",
        gpu="a100-sxm4-80gb",
        gpus=64,
        link="ethernet-10g",
        strategy="fsdp2",
    ).estimates[0]
    parameters, root = 8.03e9, 2 * 128_256 * 4096
    bytes_sent = (2 * parameters + 2 * (parameters - root) + 4 * parameters) * 63 / 64
    assert found.time.step_seconds == pytest.approx(bytes_sent / (0.9 * 1.25e9), rel=0.05)


def test_the_page_on_ethernet_shows_these_figures() -> None:
    """`python docs/ethernet.py` rewrites it."""
    check = [sys.executable, str(Path(__file__).parents[2] / "docs" / "ethernet.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
