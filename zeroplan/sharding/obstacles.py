"""What of a training run a strategy cannot do."""

from collections.abc import Iterator

from zeroplan.errors import SpecError
from zeroplan.sharding.dtypes import autocasts, computes_on_stored
from zeroplan.sharding.optimizers import OPTIMIZERS
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import TrainingChoice
from zeroplan.units import DTYPE_BYTES

__all__ = ["able", "left_out"]


def able(
    rows: tuple[Sharding, ...], training: TrainingChoice, *, named: bool
) -> tuple[Sharding, ...]:
    """Leave out strategies that cannot run a training as asked.

    Raises
    ------
    SpecError
        The user named the strategy, or none is left.
    """
    found = tuple(row for row in rows if not any(_obstacles(row, training)))
    if found and not (named and len(found) < len(rows)):
        return found
    raise SpecError(f"{next(_obstacles(rows[0], training))}; use another strategy.")


def left_out(rows: tuple[Sharding, ...], training: TrainingChoice) -> tuple[str, ...]:
    """Say which strategies are not compared, and why."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for obstacle in _obstacles(row, training):
            reasons.setdefault(obstacle, []).append(row.strategy)
    return tuple(f"{', '.join(rows)} left out: {why}." for why, rows in reasons.items())


def _obstacles(row: Sharding, training: TrainingChoice) -> Iterator[str]:
    optimizer = OPTIMIZERS[training.optimizer]
    if row.framework in optimizer.lacks:
        yield f"training.optimizer = {training.optimizer!r}: {optimizer.reason}"
    if training.optimizer == "muon" and training.optimizer_in_backward and row.framework == "fsdp2":
        yield "training.optimizer_in_backward leaves Muon no batch of matrices to exchange"
    if training.fp8 != "none" and autocasts(row, training):
        yield (
            f"training.fp8 = {training.fp8!r} is not modelled under torch.autocast, which "
            f"parameter_dtype = {training.parameter_dtype!r} means here"
        )
    stored, compute = training.parameter_dtype, training.compute_dtype
    if computes_on_stored(row) and DTYPE_BYTES[compute] > DTYPE_BYTES[stored]:
        yield (
            f"training.compute_dtype = {compute!r} is wider than parameter_dtype = {stored!r}, and "
            "autocast, which that needs here, only narrows"
        )
    if training.reference_model and (row.framework == "fsdp1" or _gathers_modules(row)):
        yield "training.reference_model is not modelled where FSDP1 or ZeRO-3 gathers the copy"


def _gathers_modules(row: Sharding) -> bool:
    return row.framework == "deepspeed" and row.divides_parameters
