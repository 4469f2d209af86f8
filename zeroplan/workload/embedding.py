"""Lookup tables on the tape, and parameters that compute next to nothing."""

from zeroplan.spec.architecture import Embedding, Weights
from zeroplan.units import Size
from zeroplan.workload.tape import Operation, Parameter, Summed, Tape, Tensor

__all__ = ["embedding", "weights"]


def weights(extras: tuple[Weights, ...]) -> tuple[Parameter, ...]:
    """Return parameters that compute next to nothing."""
    return tuple(Parameter(name=e.name, shape=e.shape, role=e.role) for e in extras)


def embedding(tape: Tape, table: Embedding, tokens: Size, *, summed: Summed = "") -> Tensor:
    """Look rows up: backward needs the indices only, which the batch holds anyway."""
    size = tape.batch.parameter_itemsize
    out = tape.tensor(f"{table.name} rows", tokens, table.width, itemsize=size)
    weight = Parameter(
        name=f"{table.name}.weight",
        shape=(table.rows, table.width),
        role="embedding" if table.kind == "token" else "other",
        tied_to="embedding" if table.tied else None,
        summed=summed if table.kind == "token" else "",
        trainable=table.trainable,
    )
    tape.add(
        Operation(
            name=table.name,
            kernel="lookup",
            outputs=(out,),
            parameters=(weight,),
            module=table.name,
        )
    )
    return out
