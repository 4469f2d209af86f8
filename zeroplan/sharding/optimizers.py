"""What each optimizer keeps of what a rank updates: one row each, read in its library's source.

Sizes are of single storages, before the allocator rounds them. Sources: torch/optim (2.13),
bitsandbytes/optim/optimizer.py (0.50.2), torchao/optim/{adam,subclass_8bit,subclass_4bit}.py
(0.18.0), lion_pytorch/lion_pytorch.py (0.2.5).
"""

from collections.abc import Callable
from math import ceil, prod
from typing import Final, Literal, NamedTuple

from zeroplan.errors import SpecError
from zeroplan.records import dataclass, replace
from zeroplan.sharding.strategies import Framework
from zeroplan.spec.run import Optimizer, OptimizerImplementation, TrainingChoice
from zeroplan.units import FP32, Size, ceil_div

__all__ = ["Kept", "OptimizerRow", "Piece", "is_muons", "optimizer_row", "runs_under", "vector"]

BLOCK_FROM: Final = 4096
"""Elements from which bitsandbytes and torchao keep a tensor's states in few bits."""
PAGED_FROM: Final = 100_000
"""Elements from which bitsandbytes' paged states lie in unified memory (`get_state_buffer`)."""
MATRIX: Final = 2
"""Extents of a matrix."""
TABLE: Final = 256
"""Values of an 8-bit map. [elements]"""

Update = Literal["adam", "in place", "lion", "adafactor", "one kernel", "muon"]
"""How an update goes, which says what lives meanwhile."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRow:
    """One optimizer."""

    states: States
    """What it keeps of a piece, given the bytes per element of states in the parameters' dtype."""
    update: Update
    implementations: tuple[OptimizerImplementation, ...]
    """Those that its library has; the first is its default."""
    tensors: int | None = None
    """Tensors per parameter, where each has the parameter's shape and dtype. [count]"""
    shared_bytes: Size = 0
    """What all pieces share. [B]"""
    deepspeed: bool = True
    """Whether DeepSpeed builds it itself; else it is a client's (`zero_allow_untested_optimizer`)."""
    lacks: tuple[Framework, ...] = ()
    """Frameworks whose parameters it cannot update."""
    reason: str = ""
    """Why not."""
    source: str


def is_muons(piece: Piece) -> bool:
    """Whether Muon updates a piece: matrices between embedding and head, never a stack of them."""
    return piece.hidden and len(piece.shape) == MATRIX


def vector(elements: Size, times: int = 1) -> Piece:
    """Return a piece of a vector that holds several parameters."""
    return Piece((elements,), times)


def _tensors(count: int) -> States:
    def states(piece: Piece, itemsize: int) -> Kept:
        return Kept(count * (piece.elements * itemsize,))

    return states


def _factored(piece: Piece, itemsize: int) -> Kept:
    """Keep a matrix' squared gradients as a mean per row and one per column; a vector's whole."""
    if len(piece.shape) <= 1:
        return Kept((piece.elements * itemsize,))
    *outer, rows, columns = piece.shape
    matrices = prod(outer)
    return Kept((matrices * rows * itemsize, matrices * columns * itemsize))


def _bitsandbytes(piece: Piece, itemsize: int) -> Kept:  # noqa: ARG001  # its states have their own
    """Keep two uint8 states with an fp32 magnitude per 256 elements, small tensors' in fp32."""
    elements = piece.elements
    if elements < BLOCK_FROM:
        return Kept(2 * (elements * FP32,))
    return Kept(2 * (elements, ceil_div(elements, 256) * FP32))


def _paged(states: States) -> States:
    """Let a piece's large states, but not their magnitudes, lie in unified memory."""

    def paged(piece: Piece, itemsize: int) -> Kept:
        storages = states(piece, itemsize).storages
        if piece.elements < PAGED_FROM:
            return Kept(storages)
        moved = tuple(size for size in storages if size >= piece.elements)
        return Kept(tuple(size for size in storages if size < piece.elements), sum(moved))

    return paged


def _fp32(count: int) -> States:
    return lambda piece, _: Kept(count * (piece.elements * FP32,))


def _torchao(bits: int, block: int, table: int) -> States:
    """Keep codes, an fp32 scale per block and a table per state; whole blocks only, else as is."""

    def states(piece: Piece, itemsize: int) -> Kept:
        elements = piece.elements
        if elements < BLOCK_FROM or elements % block:
            return Kept(2 * (elements * itemsize,))
        return Kept(2 * (elements * bits // 8, elements // block * FP32, table * FP32))

    return states


def _given(size: float) -> States:
    return lambda piece, _: Kept((ceil(piece.elements * size),))


def _muon(piece: Piece, itemsize: int) -> Kept:
    """Keep a momentum of hidden matrices, AdamW's two moments of everything else."""
    count = 1 if is_muons(piece) else 2
    return Kept(count * (piece.elements * itemsize,))


_TORCH: Final[tuple[OptimizerImplementation, ...]] = ("foreach", "fused", "for-loop")
_LOOP: Final[tuple[OptimizerImplementation, ...]] = ("for-loop",)
_FUSED: Final[tuple[OptimizerImplementation, ...]] = ("fused",)
_BNB: Final = "bitsandbytes.optim 0.50.2"
_NO_DTENSOR: Final = "bitsandbytes' kernels take no sharded tensors (DTensor)"

OPTIMIZERS: Final[dict[Optimizer, OptimizerRow]] = {
    "adamw": OptimizerRow(
        states=_tensors(2),
        tensors=2,
        update="adam",
        implementations=_TORCH,
        source="exp_avg, exp_avg_sq: torch/optim/adamw.py 2.13",
    ),
    "adam": OptimizerRow(
        states=_tensors(2),
        tensors=2,
        update="adam",
        implementations=_TORCH,
        source="exp_avg, exp_avg_sq: torch/optim/adam.py 2.13",
    ),
    "sgd": OptimizerRow(
        states=_tensors(0),
        tensors=0,
        update="in place",
        implementations=_TORCH,
        source="torch/optim/sgd.py 2.13",
    ),
    "sgd-momentum": OptimizerRow(
        states=_tensors(1),
        tensors=1,
        update="in place",
        implementations=_TORCH,
        source="momentum_buffer: torch/optim/sgd.py 2.13",
    ),
    "lion": OptimizerRow(
        states=_tensors(1),
        tensors=1,
        update="lion",
        implementations=("for-loop", "fused"),
        source="exp_avg: lion_pytorch 0.2.5 (Chen et al., arXiv 2302.06675, algorithm 2)",
    ),
    "adafactor": OptimizerRow(
        states=_factored,
        update="adafactor",
        implementations=("for-loop", "foreach"),
        lacks=("fsdp2", "torch-zero1"),
        reason="the Adafactor of torch 2.13 and that of transformers 5 fail on sharded tensors "
        "(DTensor), and ZeroRedundancyOptimizer's shares are not told by shape",
        source="row_var, col_var, variance: torch/optim/_adafactor.py 2.13",
    ),
    "adamw-8bit": OptimizerRow(
        states=_bitsandbytes,
        update="one kernel",
        implementations=_FUSED,
        shared_bytes=2 * TABLE * FP32,
        deepspeed=False,
        source=f"AdamW8bit: {_BNB}; under fsdp2 and hsdp torchao.optim 0.18.0",
    ),
    "adamw-4bit": OptimizerRow(
        states=_torchao(4, 128, 16),
        update="one kernel",
        implementations=_FUSED,
        deepspeed=False,
        source="AdamW4bit: torchao.optim 0.18.0",
    ),
    "paged-adamw": OptimizerRow(
        states=_paged(_fp32(2)),
        update="one kernel",
        implementations=_FUSED,
        deepspeed=False,
        lacks=("fsdp2",),
        reason=_NO_DTENSOR,
        source=f"PagedAdamW: {_BNB}",
    ),
    "paged-adamw-8bit": OptimizerRow(
        states=_paged(_bitsandbytes),
        update="one kernel",
        implementations=_FUSED,
        shared_bytes=2 * TABLE * FP32,
        deepspeed=False,
        lacks=("fsdp2",),
        reason=_NO_DTENSOR,
        source=f"PagedAdamW8bit: {_BNB}",
    ),
    "muon": OptimizerRow(
        states=_muon,
        update="muon",
        implementations=_TORCH,
        deepspeed=False,
        lacks=("fsdp1", "fsdp2", "deepspeed", "torch-zero1"),
        reason="it needs whole matrices: torch 2.13's gathers sharded ones as DTensor's costs have "
        "it, DeepSpeed's exchanges gradients of its own, and neither is modelled",
        source="momentum_buffer: torch/optim/_muon.py 2.13; AdamW for the rest",
    ),
    "none": OptimizerRow(
        states=_tensors(0),
        tensors=0,
        update="in place",
        implementations=_TORCH,
        source="nothing is updated",
    ),
}

_SHARDED: Final[dict[Optimizer, OptimizerRow]] = {
    "adamw-8bit": OptimizerRow(
        states=_torchao(8, 256, TABLE),
        update="one kernel",
        implementations=_FUSED,
        source="AdamW8bit: torchao.optim 0.18.0, the one that takes sharded tensors (DTensor)",
    ),
}
"""Rows of what another library updates where parameters are sharded tensors."""


def optimizer_row(training: TrainingChoice, framework: Framework) -> OptimizerRow:
    """Return the row of the optimizer that a framework's parameters get.

    Raises
    ------
    SpecError
        The optimizer cannot update them, or does not run as asked.
    """
    name, asked = training.optimizer, training.optimizer_implementation
    row = OPTIMIZERS[name]
    if framework in row.lacks:
        raise SpecError(
            f"training.optimizer = {name!r} does not run under this strategy: {row.reason}; "
            "use another strategy or optimizer."
        )
    if asked is not None and asked not in row.implementations:
        raise SpecError(
            f"training.optimizer_implementation = {asked!r}: {name} has "
            f"{' and '.join(row.implementations)} only."
        )
    if framework == "fsdp2":
        row = _SHARDED.get(name, row)
    size = training.optimizer_bytes_per_parameter
    if size is None:
        return row
    return replace(row, states=_given(size), tensors=None, shared_bytes=0, update="in place")


def runs_under(optimizer: Optimizer, framework: Framework) -> bool:
    """Whether an optimizer can update the parameters of a framework."""
    return framework not in OPTIMIZERS[optimizer].lacks
