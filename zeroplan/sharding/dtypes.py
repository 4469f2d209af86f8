"""Which dtype each framework holds its states in."""

from zeroplan.records import dataclass
from zeroplan.sharding.optimizers import OptimizerRow, optimizer_row
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import OptimizerImplementation, TrainingChoice
from zeroplan.units import DTYPE_BYTES, FP32
from zeroplan.workload.tape import Parameter

__all__ = ["Dtypes", "autocasts", "computes_on_stored", "dtypes"]


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
    rule: OptimizerRow
    """What the optimizer keeps of a parameter."""
    implementation: OptimizerImplementation
    autocast: bool
    """torch.autocast keeps a compute-dtype copy of every matmul weight until its backward."""

    frozen: int = 0
    """Persistent parameters that are not trained; 0: as those that are. [B]"""

    def stored(self, parameter: Parameter) -> int:
        """Bytes per element of a parameter between its uses. [B]"""
        frozen = 0 if parameter.trainable else self.frozen
        return parameter.packed_itemsize or frozen or self.parameter

    def used(self, parameter: Parameter) -> int:
        """Bytes per element of a parameter in use, where it is gathered or cast. [B]"""
        return parameter.packed_itemsize or self.compute

    @property
    def optimizer(self) -> int | None:
        """What the optimizer keeps per parameter; None where that depends on its shape. [B]"""
        tensors = self.rule.tensors
        return None if tensors is None else self.master + tensors * self.state


def autocasts(row: Sharding, training: TrainingChoice) -> bool:
    """Whether torch.autocast casts what matmuls read: nothing else casts under DDP."""
    narrows = DTYPE_BYTES[training.compute_dtype] < DTYPE_BYTES[training.parameter_dtype]
    return narrows and computes_on_stored(row)


def computes_on_stored(row: Sharding) -> bool:
    """Whether modules compute on the parameters themselves, which no wrapper casts."""
    return row.framework in ("ddp", "torch-zero1", "single")


def dtypes(row: Sharding, training: TrainingChoice) -> Dtypes:
    """Resolve the dtypes of a strategy.

    DeepSpeed stores the compute dtype and an fp32 master, and reduces in the compute dtype; DDP
    and FSDP store `parameter_dtype`, whose optimizer states have the same dtype.
    """
    rule = optimizer_row(training, row.framework)
    compute = DTYPE_BYTES[training.compute_dtype]
    if row.framework == "deepspeed":
        return _deepspeed(row, training, rule)
    stored = DTYPE_BYTES[training.parameter_dtype]
    master = FP32 if training.master_copy and stored < FP32 else 0
    reduces = row.framework in ("fsdp1", "fsdp2")
    reduce = DTYPE_BYTES[training.reduce_dtype or "fp32"] if reduces else stored
    return Dtypes(
        parameter=stored,
        compute=compute,
        reduce=reduce,
        gradient=stored,
        master=master,
        state=DTYPE_BYTES[training.optimizer_state_dtype or "fp32"] if master else stored,
        rule=rule,
        implementation=training.optimizer_implementation or rule.implementations[0],
        autocast=autocasts(row, training),
    )


def _deepspeed(row: Sharding, training: TrainingChoice, rule: OptimizerRow) -> Dtypes:
    """ZeRO clones an fp32 master of what it divides even where the parameters are fp32 already.

    Of Adam and Lion DeepSpeed has kernels of its own (`_configure_basic_optimizer`).
    """
    compute = DTYPE_BYTES[training.compute_dtype]
    own = "fused" if rule.update in ("adam", "lion") else rule.implementations[0]
    return Dtypes(
        parameter=compute,
        compute=compute,
        reduce=DTYPE_BYTES[training.reduce_dtype] if training.reduce_dtype else compute,
        gradient=compute,
        master=FP32 if compute < FP32 or row.divides_optimizer else 0,
        state=FP32,
        rule=rule,
        implementation=training.optimizer_implementation or own,
        autocast=False,
    )
