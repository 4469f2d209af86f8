"""What optimizers keep of what a rank updates, by the form of their states.

Sizes are of single storages, before the allocator rounds them. Sources: torch/optim (2.13),
bitsandbytes/optim/optimizer.py (0.50.2), torchao/optim/{adam,subclass_8bit,subclass_4bit}.py
(0.18.0).
"""

from collections.abc import Callable
from math import ceil, prod
from typing import Final, NamedTuple

from zeroplan.units import FP32, Size, ceil_div

__all__ = [
    "MAP",
    "Kept",
    "Piece",
    "States",
    "bitsandbytes",
    "factored",
    "given",
    "is_muons",
    "muon",
    "paged",
    "tensors",
    "torchao",
    "vector",
    "wide",
]

BLOCK_FROM: Final = 4096
"""Elements from which bitsandbytes and torchao keep a tensor's states in few bits."""
PAGED_FROM: Final = 100_000
"""Elements from which bitsandbytes' paged states lie in unified memory (`get_state_buffer`)."""
MATRIX: Final = 2
"""Extents of a matrix."""
MAP: Final = 256
"""Values of an 8-bit map. [elements]"""


class Piece(NamedTuple):
    """What one rank updates of a parameter."""

    shape: tuple[Size, ...]
    times: int = 1
    """Equal pieces that this one stands for. [count]"""
    hidden: bool = False
    """Of a layer between embedding and head, where Muon updates matrices."""

    @property
    def elements(self) -> Size:
        """[elements]"""
        return prod(self.shape)


class Kept(NamedTuple):
    """States of one piece. [B]"""

    storages: tuple[Size, ...] = ()
    """Each in a storage of its own on the GPU."""
    paged: Size = 0
    """In unified memory: on the GPU while there is room, else in the host's."""


States = Callable[[Piece, int], Kept]


def is_muons(piece: Piece) -> bool:
    """Whether Muon updates a piece: matrices between embedding and head, never a stack of them."""
    return piece.hidden and len(piece.shape) == MATRIX


def vector(elements: Size, times: int = 1) -> Piece:
    """Return a piece of a vector that holds several parameters."""
    return Piece((elements,), times)


def tensors(count: int) -> States:
    """Keep tensors of the parameter's shape and dtype."""

    def states(piece: Piece, itemsize: int) -> Kept:
        return Kept(count * (piece.elements * itemsize,))

    return states


def factored(piece: Piece, itemsize: int) -> Kept:
    """Keep a matrix' squared gradients as a mean per row and one per column; a vector's whole."""
    if len(piece.shape) <= 1:
        return Kept((piece.elements * itemsize,))
    *outer, rows, columns = piece.shape
    matrices = prod(outer)
    return Kept((matrices * rows * itemsize, matrices * columns * itemsize))


def bitsandbytes(piece: Piece, itemsize: int) -> Kept:  # noqa: ARG001  # its states have their own
    """Keep two uint8 states with an fp32 magnitude per 256 elements, small tensors' in fp32."""
    elements = piece.elements
    if elements < BLOCK_FROM:
        return Kept(2 * (elements * FP32,))
    return Kept(2 * (elements, ceil_div(elements, 256) * FP32))


def paged(states: States) -> States:
    """Let a piece's large states, but not their magnitudes, lie in unified memory."""

    def paged(piece: Piece, itemsize: int) -> Kept:
        storages = states(piece, itemsize).storages
        if piece.elements < PAGED_FROM:
            return Kept(storages)
        moved = tuple(size for size in storages if size >= piece.elements)
        return Kept(tuple(size for size in storages if size < piece.elements), sum(moved))

    return paged


def wide(count: int) -> States:
    """Keep fp32 tensors of the parameter's shape."""
    return lambda piece, _: Kept(count * (piece.elements * FP32,))


def torchao(bits: int, block: int, table: int) -> States:
    """Keep codes, an fp32 scale per block and a table per state; whole blocks only, else as is."""

    def states(piece: Piece, itemsize: int) -> Kept:
        elements = piece.elements
        if elements < BLOCK_FROM or elements % block:
            return Kept(2 * (elements * itemsize,))
        return Kept(2 * (elements * bits // 8, elements // block * FP32, table * FP32))

    return states


def given(size: float) -> States:
    """Keep so many bytes per element."""
    return lambda piece, _: Kept((ceil(piece.elements * size),))


def muon(piece: Piece, itemsize: int) -> Kept:
    """Keep a momentum of hidden matrices, AdamW's two moments of everything else."""
    count = 1 if is_muons(piece) else 2
    return Kept(count * (piece.elements * itemsize,))
