"""The three states per GPU, against the bytes per parameter that the frameworks' papers state."""

from itertools import pairwise
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.record import Memory
from zeroplan.sharding.strategies import STRATEGIES, sharding

WHOLE = estimate(model="llama-3.1-8b", gpus=8, strategy="ddp").estimates[0].memory
PARAMETERS = WHOLE.parameters_bytes // 4


@pytest.mark.parametrize(
    ("strategy", "parameter", "gradient", "optimizer"),
    [
        ("ddp", 4, 4, 8),
        ("zero0", 2, 2, 12),
        ("zero1", 2, 2, 12 / 8),
        ("zero2", 2, 2 / 8, 12 / 8),
        ("zero3", 2 / 8, 2 / 8, 12 / 8),
        ("fsdp1", 4 / 8, 4 / 8, 8 / 8),
        ("fsdp2", 4 / 8, 4 / 8, 8 / 8),
        ("hsdp", 4 / 8, 4 / 8, 8 / 8),
    ],
)
def test_bytes_per_parameter_on_8_gpus(
    strategy: str, parameter: float, gradient: float, optimizer: float
) -> None:
    memory = _memory(strategy=strategy)
    assert memory.parameters_bytes == parameter * PARAMETERS
    assert memory.gradients_bytes == gradient * PARAMETERS
    assert memory.optimizer_bytes == optimizer * PARAMETERS


@pytest.mark.parametrize(
    ("keys", "parameter", "gradient", "optimizer"),
    [
        ({"optimizer": "sgd"}, 4, 4, 0),
        ({"optimizer": "sgd-momentum"}, 4, 4, 4),
        ({"optimizer": "lion"}, 4, 4, 4),
        ({"precision": "bf16"}, 2, 2, 4),
        ({"precision": "bf16", "master_copy": True}, 2, 2, 12),
        ({"precision": "bf16-master", "optimizer_state_dtype": "bf16"}, 2, 2, 8),
    ],
)
def test_other_optimizers_and_dtypes(
    keys: dict[str, Any], parameter: int, gradient: int, optimizer: int
) -> None:
    memory = _memory(strategy="ddp", **keys)
    held = (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes)
    assert held == tuple(each * PARAMETERS for each in (parameter, gradient, optimizer))


@pytest.mark.parametrize(
    ("precision", "strategy", "parameter", "gradient", "optimizer"),
    [
        ("fp32", "ddp", 4, 4, 8),
        ("tf32", "ddp", 4, 4, 8),
        ("bf16-mixed", "ddp", 4, 4, 8),
        ("fp16-mixed", "ddp", 4, 4, 8),
        ("bf16", "ddp", 2, 2, 4),
        ("fp16", "ddp", 2, 2, 4),
        ("bf16-master", "ddp", 2, 2, 12),
        ("fp16-master", "ddp", 2, 2, 12),
        ("bf16-mixed", "zero0", 2, 2, 12),
        ("fp16-mixed", "zero0", 2, 2, 12),
        ("fp32", "zero0", 4, 4, 8),
        ("fp32", "zero2", 4, 4 / 8, 12 / 8),
    ],
)
def test_bytes_per_parameter_in_each_precision(
    precision: str, strategy: str, parameter: float, gradient: float, optimizer: float
) -> None:
    """Mixed: fp32 under autocast; DeepSpeed stores the compute dtype and an fp32 master.

    A master copy as in the ZeRO paper's figure 1: 2 + 2 + 12 (arXiv 1910.02054).
    """
    memory = _memory(strategy=strategy, precision=precision)
    held = (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes)
    assert held == tuple(each * PARAMETERS for each in (parameter, gradient, optimizer))


def test_the_table_divides_ever_more_from_stage_to_stage() -> None:
    stages = [STRATEGIES[name] for name in ("zero0", "zero1", "zero2", "zero3")]
    divided = [
        {
            part
            for part in ("optimizer", "gradients", "parameters")
            if getattr(row, f"divides_{part}")
        }
        for row in stages
    ]
    assert [len(parts) for parts in divided] == [0, 1, 2, 3]
    assert all(before < after for before, after in pairwise(divided))


def test_an_unknown_strategy_is_named() -> None:
    with pytest.raises(SpecError, match="'zero4' is not modelled by this version; use one of none"):
        sharding("zero4")  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", ["ddp", "torch-zero1"])
def test_what_autocast_cannot_do_is_named(strategy: str) -> None:
    with pytest.raises(
        SpecError, match="compute_dtype = 'fp32' is wider than parameter_dtype = 'bf16'"
    ):
        _memory(strategy=strategy, parameter_dtype="bf16", compute_dtype="fp32")


def _memory(**keys: Any) -> Memory:
    return estimate(model="llama-3.1-8b", gpus=8, **keys).estimates[0].memory
