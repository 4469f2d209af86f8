"""What primers on data parallelism and ZeRO tell beginners, and where that is loose."""

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
