"""Which dtype each framework holds its states in, and what each optimizer keeps per parameter."""

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import Optimizer, OptimizerImplementation, TrainingChoice
from zeroplan.units import DTYPE_BYTES, FP32

__all__ = ["Dtypes", "dtypes"]

STATES: dict[Optimizer, int] = {
    "adamw": 2,  # exp_avg, exp_avg_sq: torch/optim/adamw.py
    "adam": 2,
    "lion": 1,  # exp_avg: Chen et al., arXiv 2302.06675, algorithm 2
    "sgd-momentum": 1,  # momentum_buffer: torch/optim/sgd.py
    "sgd": 0,
    "none": 0,
}
"""Tensors per parameter, each of the parameter's shape and dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    """Bytes per element of everything that a rank holds or sends."""

    parameter: int
    """Persistent parameters, sharded or not. [B]"""
    compute: int
    """Unsharded parameters in use, activations and fresh gradients. [B]"""
    reduce: int
    """Gradients on the wire. [B]"""
    gradient: int
    """Gradients that the optimizer reads. [B]"""
    master: int
    """A separate fp32 copy held by the optimizer; 0 where there is none. [B]"""
    state: int
    """One optimizer state. [B]"""
    states: int
    """Optimizer states per parameter. [count]"""
    implementation: OptimizerImplementation
    autocast: bool
    """torch.autocast keeps a compute-dtype copy of every matmul weight until its backward."""

    @property
    def optimizer(self) -> int:
        """Everything that the optimizer keeps per parameter. [B]"""
        return self.master + self.states * self.state


def dtypes(row: Sharding, training: TrainingChoice) -> Dtypes:
    """Resolve the dtypes of a strategy.

    DeepSpeed stores the compute dtype and an fp32 master, and reduces in the compute dtype; DDP
    and FSDP store `parameter_dtype`, whose optimizer states have the same dtype.
    """
    if training.optimizer not in STATES:
        known = ", ".join(STATES)
        raise SpecError(
            f"training.optimizer: {training.optimizer!r} is not modelled by this version; "
            f"use one of {known}"
        )
    compute = DTYPE_BYTES[training.compute_dtype]
    if row.framework == "deepspeed":
        return _deepspeed(row, training, compute)
    stored = DTYPE_BYTES[training.parameter_dtype]
    master = FP32 if training.master_copy and stored < FP32 else 0
    whole = row.framework in ("ddp", "torch-zero1", "single")
    if whole and compute > stored:
        raise SpecError(
            f"training.compute_dtype = {training.compute_dtype} is wider than parameter_dtype = "
            f"{training.parameter_dtype}, and autocast, which {row.strategy} would need, only "
            "narrows: give both alike, or name fsdp2."
        )
    autocast = whole and compute < stored
    reduces = row.framework in ("fsdp1", "fsdp2")
    reduce = DTYPE_BYTES[training.reduce_dtype or "fp32"] if reduces else stored
    return Dtypes(
        parameter=stored,
        compute=compute,
        reduce=reduce,
        gradient=stored,
        master=master,
        state=FP32 if master else stored,
        states=STATES[training.optimizer],
        implementation=training.optimizer_implementation or "foreach",
        autocast=autocast,
    )


def _deepspeed(row: Sharding, training: TrainingChoice, compute: int) -> Dtypes:
    """ZeRO clones an fp32 master of what it divides even where the parameters are fp32 already."""
    return Dtypes(
        parameter=compute,
        compute=compute,
        reduce=DTYPE_BYTES[training.reduce_dtype] if training.reduce_dtype else compute,
        gradient=compute,
        master=FP32 if compute < FP32 or row.divides_optimizer else 0,
        state=FP32,
        states=STATES[training.optimizer],
        implementation=training.optimizer_implementation or "fused",
        autocast=False,
    )
