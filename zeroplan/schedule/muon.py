"""Muon's update of a matrix: five iterations of Newton and Schulz on its momentum.

Source: `_zeropower_via_newtonschulz` in torch/optim/_muon.py (2.13).
"""

from collections.abc import Iterator
from typing import Final

from zeroplan.sharding.optimizer_states import Piece, is_muons
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Step
from zeroplan.workload.tape import Matmul, Operation

__all__ = ["muon_matmuls", "muon_temporary"]

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
