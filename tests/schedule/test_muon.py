"""Muon on shards: what Dion's and torchtitan's code sends, counted by hand.

Source: torchtitan/experiments/dion_optimizer/muon.py (175ea57). On whole parameters
`zeroplan validate` runs torch.optim's.
"""

from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.record import StrategyEstimate

BLOCKS = 32
SHAPES = {(4096, 4096): 2, (1024, 4096): 2, (14336, 4096): 2, (4096, 14336): 1}
"""Matrices of a block of Llama 3.1 8B."""


def _one(**keys: Any) -> StrategyEstimate:
    return estimate(model="llama-3.1-8b", optimizer="muon", **keys).estimates[0]


@pytest.mark.parametrize(("gpus", "strategy", "ranks"), [(8, "fsdp2", 8), (64, "hsdp", 8)])
def test_two_all_to_alls_for_as_many_matrices_as_there_are_ranks(
    gpus: int, strategy: str, ranks: int
) -> None:
    row = _one(gpus=gpus, strategy=strategy)
    (calls,) = (c for c in row.communication.collectives if c.phase == "optimizer")
    batches = {shape: -(-BLOCKS * count // ranks) for shape, count in SHAPES.items()}
    sent = sum(2 * rows * columns * 2 * batches[rows, columns] for rows, columns in SHAPES)
    assert (calls.name, calls.group, calls.count) == (
        "all_to_all",
        "shard",
        2 * sum(batches.values()),
    )
    assert calls.input_bytes == calls.output_bytes == sent


def test_a_batch_that_is_not_full_is_filled_up() -> None:
    """On 128 ranks 64 matrices are one batch all the same, and so are 32."""
    row = _one(gpus=128, strategy="fsdp2")
    (calls,) = (c for c in row.communication.collectives if c.phase == "optimizer")
    assert calls.count == 2 * len(SHAPES)


def test_each_rank_orthogonalises_its_share_only() -> None:
    whole, shared = _one(gpus=8, strategy="ddp"), _one(gpus=8, strategy="fsdp2")
    assert whole.time.optimizer_seconds is not None
    assert shared.time.optimizer_seconds is not None
    assert 5 < whole.time.optimizer_seconds / shared.time.optimizer_seconds < 10


def test_one_rank_sends_nothing() -> None:
    calls = _one(gpus=1, strategy="fsdp2").communication.collectives
    assert [c.name for c in calls if c.phase == "optimizer"] == []


def test_rows_that_the_ranks_do_not_divide_are_refused() -> None:
    with pytest.raises(SpecError, match="4096 rows of a matrix are not divided by 3 ranks"):
        _one(gpus=3, gpus_per_node=3, strategy="fsdp2")


def test_an_update_in_backward_leaves_no_batch() -> None:
    with pytest.raises(SpecError, match="leaves Muon no batch of matrices"):
        _one(gpus=8, strategy="fsdp2", optimizer_in_backward=True)
