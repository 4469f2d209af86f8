"""What the host spends: on each kernel, on hooks, on collectives."""

import pytest

from zeroplan import estimate
from zeroplan.estimation.record import Time
from zeroplan.sharding.strategies import sharding
from zeroplan.timing.host import CHECKPOINT, COLLECTIVE, FORWARD, GRADIENT, MODULE, host_price


def test_each_framework_pays_for_its_own_hooks() -> None:
    prices = {name: host_price(sharding(name), compiled=False) for name in ("none", "ddp", "zero3")}
    assert prices["none"].gradient_seconds == 0.0
    assert prices["ddp"].gradient_seconds == GRADIENT.value
    assert prices["ddp"].module_seconds == 0.0
    assert prices["zero3"].module_seconds == MODULE.value
    assert host_price(sharding("fsdp2"), compiled=False).collective_seconds == COLLECTIVE.value


def test_compiled_code_issues_a_kernel_faster() -> None:
    assert host_price(sharding("ddp"), compiled=True).forward_seconds < FORWARD.value


def test_a_step_of_few_tokens_takes_as_long_as_one_of_a_few_more() -> None:
    """Qwen's table: ZeRO-3 takes 2.1 s with 256 tokens, 2.3 s with 2,048 (QwenLM/Qwen, README)."""
    few, more = (_time(length, "zero3").step_seconds or 0.0 for length in (256, 2048))
    assert few == pytest.approx(more, rel=0.05)
    assert (_time(2**16, "zero3").step_seconds or 0.0) > 3 * few


def test_long_steps_are_not_bound_by_the_host() -> None:
    """Their kernels take longer than it needs to issue them."""
    short, long = (_time(length, "none") for length in (2**15, 2**16))
    assert (long.step_seconds or 0.0) > 1.9 * (short.step_seconds or 0.0)


def test_gaps_between_kernels_count_as_compute() -> None:
    time = _time(256, "none")
    assert time.exposed_communication_seconds == pytest.approx(0.0, abs=1e-9)


def test_a_checkpoint_costs_the_host_a_second_forward_and_its_own_time() -> None:
    plain = _time(256, "none").step_seconds or 0.0
    again = _time(256, "none", activation_checkpointing="full").step_seconds or 0.0
    blocks = 30
    assert again - plain > blocks * (CHECKPOINT.value + 10 * FORWARD.value)


def _time(sequence_length: int, strategy: str, activation_checkpointing: str = "none") -> Time:
    found = estimate(
        model="smollm-135m",
        gpus=1,
        gpu="a100-sxm4-80gb",
        sequence_length=sequence_length,
        micro_batch_size=1,
        strategy=strategy,
        activation_checkpointing=activation_checkpointing,
    )
    return found.estimates[0].time
