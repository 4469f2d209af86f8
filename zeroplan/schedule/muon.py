"""Muon's update of a matrix: five iterations of Newton and Schulz on its momentum.

Source: `_zeropower_via_newtonschulz` in torch/optim/_muon.py (2.13).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.schedule.events import Recorder, collective
from zeroplan.sharding.groups import Group
from zeroplan.sharding.optimizer_states import Piece, is_muons
from zeroplan.sharding.optimizers import SHARDED_MUON
from zeroplan.units import Size, ceil_div, round_up
from zeroplan.workload.changes import Change, Step
from zeroplan.workload.tape import Matmul, Operation

__all__ = ["muon_matmuls", "muon_temporary", "sharded_muon_step"]

ITERATIONS: Final = 5
BF16: Final = 2
"""Bytes of what the iterations run in, whatever the parameters are. [B]"""


def muon_temporary(piece: Piece, itemsize: int) -> Size:
    """Sum what lives in an iteration [B].

    The update in the parameters' dtype, the matrix before and after in bf16, and two products of
    it with its transpose, which are as wide as its shorter side.
    """
    least = min(piece.shape)
    matrix, gram = round_up(piece.elements * BF16), round_up(least * least * BF16)
    return round_up(piece.elements * itemsize) + 2 * matrix + 2 * gram


def muon_matmuls(pieces: list[Piece]) -> Iterator[Step]:
    """Yield the products: the matrix with its transpose, that squared, that with the matrix."""
    for piece in pieces:
        if is_muons(piece):
            least, most = sorted(piece.shape)
            count = ITERATIONS * piece.times
            products = (
                Matmul(m=least, n=least, k=most, count=count),
                Matmul(m=least, n=least, k=least, count=count),
                Matmul(m=least, n=most, k=least, count=count),
            )
            yield Step(
                Operation(name="orthogonalise", kernel="matmul", matmuls=products), "forward", ()
            )


def sharded_muon_step(recorder: Recorder, pieces: list[Piece], group: Group, itemsize: int) -> None:
    """Update matrices whose rows are sharded, as many of a shape at once as there are ranks.

    An all-to-all in bf16 makes a batch of shards one whole matrix per rank, which that rank
    orthogonalises; another sends the shards back. The next batch is on its way meanwhile.

    Source: `muon_update_batch_async` of Dion's Muon, as in
    torchtitan/experiments/dion_optimizer/muon.py (175ea57).
    """
    batches = list(_batches(pieces, int(group.ranks)))
    for place, piece in enumerate(batches):
        if not place:
            _exchange(recorder, piece, group, place, "matrices")
        if place + 1 < len(batches):
            _exchange(recorder, batches[place + 1], group, place + 1, "matrices")
        temporary = _in_flight(piece)
        recorder.emit(
            "orthogonalise",
            "optimizer",
            changes=(
                Change("temporaries", "Muon", temporary),
                Change("temporaries", "Muon", -temporary),
            ),
            steps=tuple(muon_matmuls([piece])),
            traffic_bytes=piece.elements * (3 * itemsize + 6 * BF16),
            waits=(_mark("matrices", place),),
        )
        _exchange(recorder, piece, group, place, "updates")
    recorder.emit("end of Muon", "optimizer", waits=("all-reduce",))


def _batches(pieces: list[Piece], ranks: int) -> Iterator[Piece]:
    """Yield one matrix for every batch of equal ones; the last of a shape is filled up."""
    counts: Counter[tuple[Size, ...]] = Counter()
    for piece in pieces:
        if is_muons(piece):
            counts[piece.shape] += piece.times
    for shape, count in counts.items():
        if shape[0] % ranks:
            raise SpecError(
                f'training.optimizer = "muon": {shape[0]} rows of a matrix are not divided by '
                f"{ranks} ranks, as its all-to-all needs; use another shard_size or strategy."
            )
        yield from (Piece(shape, hidden=True) for _ in range(ceil_div(count, ranks)))


def _exchange(recorder: Recorder, piece: Piece, group: Group, place: int, what: str) -> None:
    size = piece.elements * BF16
    recorder.emit(
        f"all-to-all of {what}",
        "optimizer",
        stream="all-reduce",
        collective=collective("all_to_all", group, size),
        waits=("compute",),
        mark=_mark(what, place),
    )


def _mark(what: str, place: int) -> str:
    return f"{what} {place}"


def _in_flight(piece: Piece) -> Size:
    """Sum what lives while a matrix is orthogonalised [B].

    Seven of its size: shards sent and received, the matrix, it scaled, both terms of an iteration
    and their sum; two squares; of the next batch its shards, of the one before what is sent and
    received: two each.
    """
    least = min(piece.shape)
    matrix, gram = round_up(piece.elements * BF16), round_up(least * least * BF16)
    return int(SHARDED_MUON.value) * matrix + 2 * gram
