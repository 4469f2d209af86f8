"""DeepSpeed's estimators, by their own accounting.

The figures in GiB are what DeepSpeed 0.19.8 prints for these parameters and GPUs. It calls them GB,
counts neither activations nor buckets, and takes the largest module by its own parameters alone:
the embedding, not a block.
"""

import pytest

from zeroplan.estimation import estimate
from zeroplan.sharding.accounting import Offload, deepspeed_host_bytes, deepspeed_state_bytes
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.run import Strategy
from zeroplan.units import GIB
from zeroplan.workload.load import load_model

pytestmark = pytest.mark.published

LLAMA_2_70B, LLAMA_3_8B = "llama-2-70b", "llama-3.1-8b"


@pytest.mark.parametrize(
    ("model", "gpus", "strategy", "offload", "printed_gib"),
    [
        (LLAMA_2_70B, 64, "zero3", "none", 19.04),
        (LLAMA_2_70B, 64, "zero2", "none", 146.55),
        (LLAMA_2_70B, 64, "zero2", "optimizer", 128.48),
        (LLAMA_3_8B, 8, "zero3", "none", 18.78),
        (LLAMA_3_8B, 8, "zero2", "none", 31.78),
    ],
)
def test_estimates_as_printed(
    model: str, gpus: int, strategy: Strategy, offload: Offload, printed_gib: float
) -> None:
    found = _estimate(model, strategy, gpus, offload)
    assert found / GIB == pytest.approx(printed_gib, abs=0.005)


def test_offloaded_parameters_leave_the_largest_layer_alone() -> None:
    largest = load_model(LLAMA_2_70B).embedding_parameters
    everything = _estimate(LLAMA_2_70B, "zero3", 64, "optimizer and parameters")
    states = _estimate(LLAMA_2_70B, "zero3", 64, "optimizer")
    assert everything == 4 * largest
    assert states - everything == 2 * load_model(LLAMA_2_70B).total_parameters // 64


def test_the_two_stages_disagree_on_one_gpu() -> None:
    """20 bytes a parameter against 18: nothing is divided, so they should be the same."""
    parameters = load_model(LLAMA_3_8B).total_parameters
    assert _estimate(LLAMA_3_8B, "zero2", 1, "none") == 20 * parameters
    layer = 4 * load_model(LLAMA_3_8B).embedding_parameters
    assert _estimate(LLAMA_3_8B, "zero3", 1, "none") - layer == 18 * parameters


@pytest.mark.parametrize(
    ("strategy", "nodes", "offload", "printed_gib"),
    [
        ("zero2", 8, "optimizer", 24667.97),
        ("zero2", 1, "optimizer", 3083.50),
        ("zero3", 8, "optimizer and parameters", 216.81),
        ("zero3", 8, "optimizer", 192.72),
    ],
)
def test_host_memory_as_printed(
    strategy: Strategy, nodes: int, offload: Offload, printed_gib: float
) -> None:
    found = deepspeed_host_bytes(
        STRATEGIES[strategy],
        load_model(LLAMA_2_70B).total_parameters,
        gpus_per_node=8,
        nodes=nodes,
        offload=offload,
    )
    assert found / GIB == pytest.approx(printed_gib, abs=0.005)


def test_of_no_machine_is_what_stage_2_says_of_the_host() -> None:
    """It is the whole job's, a hundred times what a node holds between steps."""
    answer = estimate(model=LLAMA_2_70B, gpus=64, strategy="zero2", offload_optimizer="cpu")
    memory = answer.estimates[0].memory
    assert memory.parameters_bytes / GIB == pytest.approx(128.48, abs=0.005)
    assert memory.host_bytes / GIB < 24667.97 / 60


def _estimate(model: str, strategy: Strategy, gpus: int, offload: Offload) -> int:
    count = load_model(model)
    return deepspeed_state_bytes(
        STRATEGIES[strategy],
        count.total_parameters,
        gpus,
        largest_layer=count.embedding_parameters,
        offload=offload,
    )
