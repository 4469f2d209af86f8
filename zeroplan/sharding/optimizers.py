"""One row per optimizer: what it keeps, how it updates, in which library.

Sources: torch/optim (2.13), bitsandbytes/optim (0.50.2), torchao/optim (0.18.0),
lion_pytorch/lion_pytorch.py (0.2.5).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from zeroplan.errors import SpecError
from zeroplan.records import dataclass, replace
from zeroplan.sharding.optimizer_states import (
    MAP,
    States,
    bitsandbytes,
    factored,
    given,
    muon,
    paged,
    tensors,
    torchao,
    wide,
)
from zeroplan.sharding.strategies import Framework, Sharding
from zeroplan.spec.run import Optimizer, OptimizerImplementation, TrainingChoice
from zeroplan.units import FP32, Guess, Size

__all__ = [
    "OPTIMIZERS",
    "SHARDED_MUON",
    "OptimizerRow",
    "optimizer_notes",
    "optimizer_row",
    "update_guesses",
]

Update = Literal["adam", "in place", "lion", "adafactor", "one kernel", "muon"]
"""How an update goes, which says what lives meanwhile."""


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
    guess: Guess | None = None
    """What nobody measured of its update."""
    source: str


_TORCH: Final[tuple[OptimizerImplementation, ...]] = ("foreach", "fused", "for-loop")
_FUSED: Final[tuple[OptimizerImplementation, ...]] = ("fused",)
_BNB: Final = "bitsandbytes.optim 0.50.2"
_NO_DTENSOR: Final = "bitsandbytes' kernels take no sharded tensors (DTensor)"

_PAGED: Final = Guess(
    name="share of paged optimizer states on the GPU",
    value=0.0,
    rel_uncertainty=0.0,
    unit="1",
    source="unified memory, which PyTorch does not count: it moves to the host as the GPU fills up, "
    "so none of it is needed there between updates",
)
_COMPILED: Final = Guess(
    name="temporaries of a compiled update",
    value=0.0,
    rel_uncertainty=0.0,
    unit="B",
    source="judgement: torchao compiles the update of each parameter into its kernels",
)
SHARDED_MUON: Final = Guess(
    name="matrices alive while sharded Muon orthogonalises one",
    value=11.0,
    rel_uncertainty=0.2,
    unit="1",
    source="Dion's update written anew and run on fake tensors, three batches in flight; two squares "
    "of the shorter side on top",
)

OPTIMIZERS: Final[dict[Optimizer, OptimizerRow]] = {
    "adamw": OptimizerRow(
        states=tensors(2),
        tensors=2,
        update="adam",
        implementations=_TORCH,
        source="exp_avg, exp_avg_sq: torch/optim/adamw.py 2.13",
    ),
    "adam": OptimizerRow(
        states=tensors(2),
        tensors=2,
        update="adam",
        implementations=_TORCH,
        source="exp_avg, exp_avg_sq: torch/optim/adam.py 2.13",
    ),
    "sgd": OptimizerRow(
        states=tensors(0),
        tensors=0,
        update="in place",
        implementations=_TORCH,
        source="torch/optim/sgd.py 2.13",
    ),
    "sgd-momentum": OptimizerRow(
        states=tensors(1),
        tensors=1,
        update="in place",
        implementations=_TORCH,
        source="momentum_buffer: torch/optim/sgd.py 2.13",
    ),
    "lion": OptimizerRow(
        states=tensors(1),
        tensors=1,
        update="lion",
        implementations=("for-loop", "fused"),
        source="exp_avg: lion_pytorch 0.2.5 (Chen et al., arXiv 2302.06675, algorithm 2)",
    ),
    "adafactor": OptimizerRow(
        states=factored,
        update="adafactor",
        implementations=("for-loop", "foreach"),
        deepspeed=False,
        lacks=("fsdp2", "torch-zero1"),
        reason="the Adafactor of torch 2.13 and that of transformers 5 fail on sharded tensors "
        "(DTensor), and ZeroRedundancyOptimizer's shares are not told by shape",
        source="row_var, col_var, variance: torch/optim/_adafactor.py 2.13",
    ),
    "adamw-8bit": OptimizerRow(
        states=bitsandbytes,
        update="one kernel",
        implementations=_FUSED,
        shared_bytes=2 * MAP * FP32,
        deepspeed=False,
        source=f"AdamW8bit: {_BNB}",
    ),
    "adamw-4bit": OptimizerRow(
        states=torchao(4, 128, 16),
        update="one kernel",
        implementations=_FUSED,
        deepspeed=False,
        guess=_COMPILED,
        source="AdamW4bit: torchao.optim 0.18.0",
    ),
    "paged-adamw": OptimizerRow(
        states=paged(wide(2)),
        update="one kernel",
        implementations=_FUSED,
        deepspeed=False,
        lacks=("fsdp2",),
        reason=_NO_DTENSOR,
        guess=_PAGED,
        source=f"PagedAdamW: {_BNB}",
    ),
    "paged-adamw-8bit": OptimizerRow(
        states=paged(bitsandbytes),
        update="one kernel",
        implementations=_FUSED,
        shared_bytes=2 * MAP * FP32,
        deepspeed=False,
        lacks=("fsdp2",),
        reason=_NO_DTENSOR,
        guess=_PAGED,
        source=f"PagedAdamW8bit: {_BNB}",
    ),
    "muon": OptimizerRow(
        states=muon,
        update="muon",
        implementations=_TORCH,
        deepspeed=False,
        lacks=("fsdp1", "deepspeed", "torch-zero1"),
        reason="it needs matrices: FSDP1 and ZeroRedundancyOptimizer have none to give, and how "
        "DeepSpeed's own exchanges gradients is not modelled",
        source="momentum_buffer: torch/optim/_muon.py 2.13; AdamW for the rest",
    ),
    "none": OptimizerRow(
        states=tensors(0),
        tensors=0,
        update="in place",
        implementations=_TORCH,
        source="nothing is updated",
    ),
}

_SHARDED: Final[dict[Optimizer, OptimizerRow]] = {
    "adamw-8bit": OptimizerRow(
        states=torchao(8, 256, MAP),
        update="one kernel",
        implementations=_FUSED,
        guess=_COMPILED,
        source="AdamW8bit: torchao.optim 0.18.0, the one that takes sharded tensors (DTensor)",
    ),
    "muon": replace(
        OPTIMIZERS["muon"],
        guess=SHARDED_MUON,
        source="momentum_buffer: Dion's, as in torchtitan (175ea57); AdamW for the rest",
    ),
}
"""Rows of what another library updates where parameters are sharded tensors."""


def optimizer_row(training: TrainingChoice, framework: Framework) -> OptimizerRow:
    """Return the row of the optimizer that a framework's parameters get.

    Raises
    ------
    SpecError
        Its library does not run it as asked.
    """
    name, asked = training.optimizer, training.optimizer_implementation
    row = OPTIMIZERS[name]
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
    return replace(
        row, states=given(size), tensors=None, shared_bytes=0, update="in place", guess=None
    )


def optimizer_notes(optimizer: Optimizer, compared: Iterable[Sharding]) -> Iterator[str]:
    """Say what DeepSpeed must be told of an optimizer that is not its own."""
    row, asked = OPTIMIZERS[optimizer], tuple(compared)
    if not row.deepspeed and any(each.framework == "deepspeed" for each in asked):
        yield (
            f"training.optimizer = {optimizer!r} is handed to DeepSpeed as a client's: its file "
            "needs zero_allow_untested_optimizer = true."
        )


def update_guesses(training: TrainingChoice, compared: Iterable[Sharding]) -> Iterable[Guess]:
    """Return what nobody measured of an optimizer's update under any of the strategies."""
    guesses = (optimizer_row(training, row.framework).guess for row in compared)
    return {guess.name: guess for guess in guesses if guess}.values()
