"""What can live off the GPU, what is refused, and what pinned memory takes."""

from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.sharding.offload import HostBuffer, offloading
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.run import ShardingChoice
from zeroplan.units import GIB

SMALL: dict[str, Any] = {"model": "pythia-70m", "gpus": 2, "sequence_length": 128}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"strategy": "ddp", "offload_optimizer": "cpu"}, "ddp keeps its states on the GPU"),
        ({"strategy": "none", "gpus": 1, "offload_parameters": "cpu"}, "use zero1, zero2, zero3"),
        ({"strategy": "zero2", "offload_parameters": "cpu"}, "use zero3, or offload_optimizer"),
        ({"strategy": "zero1", "offload_optimizer": "nvme"}, "use cpu, or zero3"),
        ({"strategy": "fsdp2", "offload_optimizer": "cpu"}, "set offload_parameters = cpu"),
        ({"strategy": "hsdp", "offload_parameters": "nvme"}, "to host memory only"),
        (
            {"strategy": "fsdp2", "offload_parameters": "cpu", "optimizer": "muon"},
            "use adamw, or leave it on the GPU",
        ),
        (
            {
                "strategy": "fsdp1",
                "offload_parameters": "cpu",
                "gradient_accumulation_steps": 2,
            },
            "use last, or fsdp2",
        ),
        (
            {
                "strategy": "zero3",
                "offload_optimizer": "cpu",
                "offload_optimizer_ratio": 0.5,
            },
            "use 1",
        ),
    ],
)
def test_what_a_framework_cannot_do_is_refused_with_the_remedy(
    keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as raised:
        estimate(**SMALL | keys)
    assert words in str(raised.value)


def test_side_by_side_those_that_can_do_so_offload() -> None:
    answer = estimate(**SMALL, offload_optimizer="cpu", offload_parameters="cpu")
    left = {each.strategy: each.memory.optimizer_bytes for each in answer.estimates}
    assert left.pop("ddp") > 0
    assert set(left.values()) == {0}
    assert any(note.startswith("ddp does not offload") for note in answer.notes)
    assert any(note.startswith("zero1 offloads its optimizer alone") for note in answer.notes)


def test_stage_1_keeps_whole_gradients_on_the_gpu() -> None:
    choice = ShardingChoice(strategy="zero1", offload_optimizer="cpu")
    first = offloading(STRATEGIES["zero1"], choice)
    second = offloading(STRATEGIES["zero2"], choice)
    assert (first.gradients, second.gradients) == ("none", "cpu")


def test_pinned_memory_comes_in_powers_of_two() -> None:
    size = 5 * GIB // 4
    assert HostBuffer(name="a", bytes=size, times=3).held_bytes == 3 * size
    assert HostBuffer(name="a", bytes=size, times=3, pinned=True).held_bytes == 6 * GIB
    assert HostBuffer(name="a", bytes=GIB, pinned=True).held_bytes == GIB


def test_offloading_takes_no_more_of_the_gpu_and_more_of_the_host() -> None:
    asked: tuple[dict[str, Any], ...] = (
        {"strategy": "zero1", "offload_optimizer": "cpu"},
        {"strategy": "zero2", "offload_optimizer": "cpu"},
        {"strategy": "zero3", "offload_optimizer": "cpu", "offload_parameters": "cpu"},
        {"strategy": "fsdp1", "offload_parameters": "cpu"},
        {"strategy": "fsdp2", "offload_parameters": "cpu"},
    )
    for keys in asked:
        (plain,) = estimate(**SMALL, strategy=keys["strategy"]).estimates
        (offloaded,) = estimate(**SMALL, **keys).estimates
        assert offloaded.memory.peak_allocated_bytes < plain.memory.peak_allocated_bytes
        assert offloaded.memory.host_bytes > plain.memory.host_bytes
        assert (offloaded.time.step_seconds or 0) > (plain.time.step_seconds or 0)
        # ZeRO-3 takes its norm in fp32 on the host's side, in fp64 on the GPU's
        assert offloaded.communication.wire_bytes == pytest.approx(
            plain.communication.wire_bytes, abs=8
        )


def test_nvme_holds_states_and_leaves_buffers_to_the_host() -> None:
    """Four buffers of one sub-group, here the only one, against 12 bytes a parameter."""
    keys: dict[str, Any] = {**SMALL, "model": "pythia-1.4b", "strategy": "zero3"}
    (cpu,) = estimate(**keys, offload_optimizer="cpu").estimates
    (nvme,) = estimate(**keys, offload_optimizer="nvme").estimates
    elements = nvme.memory.checkpoint_bytes / 14
    assert nvme.memory.nvme_bytes == pytest.approx(16 * elements, rel=1e-3)
    assert cpu.memory.nvme_bytes == 0
    (few,) = estimate(**keys, offload_optimizer="nvme", sub_group_size=10**8).estimates
    assert few.memory.host_bytes < nvme.memory.host_bytes


def test_parameters_over_the_limit_go_to_the_drive() -> None:
    keys: dict[str, Any] = {
        **SMALL,
        "model": "pythia-1.4b",
        "strategy": "zero3",
        "offload_optimizer": "nvme",
        "offload_parameters": "nvme",
    }
    (within,) = estimate(**keys).estimates
    (beyond,) = estimate(**keys, offload_param_max_in_cpu=0).estimates
    elements = within.memory.checkpoint_bytes / 14
    more = beyond.memory.nvme_bytes - within.memory.nvme_bytes
    assert more == pytest.approx(2 * elements, rel=1e-3)


@pytest.mark.parametrize("strategy", ["none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"])
def test_offloaded_activations_are_block_inputs_on_the_host(strategy: str) -> None:
    """24 blocks of 16384 x 2048 numbers, each pinned; the GPU waits for every copy."""
    keys: dict[str, Any] = {
        "model": "pythia-1.4b",
        "gpus": 1,
        "strategy": strategy,
        "sequence_length": 2048,
        "micro_batch_size": 8,
        "precision": "bf16",
    }
    (kept,) = estimate(**keys).estimates
    (offloaded,) = estimate(**keys, offload_activations=True).estimates
    inputs = 24 * 8 * 2048 * 2048 * 2
    assert offloaded.memory.host_bytes - kept.memory.host_bytes == inputs
    forward = [each.memory.peak_by_phase_bytes.forward for each in (kept, offloaded)]
    assert forward[0] - forward[1] == pytest.approx(inputs, rel=0.05)
    slower = (offloaded.time.step_seconds or 0) - (kept.time.step_seconds or 0)
    assert slower == pytest.approx(offloaded.time.offload_seconds, rel=1e-3)
    assert offloaded.time.offload_seconds == pytest.approx(2 * inputs / (0.8 * 63e9))


def test_only_what_whole_checkpoints_keep_is_offloaded() -> None:
    with pytest.raises(SpecError, match="activation_checkpointing = full or every-K"):
        estimate(**SMALL, activation_checkpointing="none", offload_activations=True)


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_a_reference_model_stays_on_the_gpu_beside_an_offloaded_optimizer(strategy: str) -> None:
    keys = {**SMALL, "strategy": strategy, "offload_optimizer": "cpu"}
    without, beside = (
        estimate(reference_model=asked, **keys).estimates[0].memory for asked in (False, True)
    )
    copy = beside.parameters_bytes - without.parameters_bytes
    assert copy == pytest.approx(without.parameters_bytes, rel=0.001)
    assert beside.peak_tensor_bytes - without.peak_tensor_bytes == pytest.approx(copy, rel=0.001)
