"""The three states of the ZeRO paper, per rank: parameters, gradients, optimizer."""

from collections.abc import Callable, Sequence

from zeroplan.records import dataclass
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.layout import (
    dim0_shard_elements,
    even_shard_elements,
    flat_shard_elements,
    packed,
)
from zeroplan.sharding.strategies import Sharding
from zeroplan.units import Size, ceil_div
from zeroplan.workload.tape import Parameter

__all__ = ["States", "shard_elements", "states"]


Counted = Sequence[tuple[Parameter, int]]
"""Parameters, tied ones left out, with the number of their copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes per rank, whether or not they are live at one moment."""

    parameters_bytes: Size
    gradients_bytes: Size
    optimizer_bytes: Size | None
    """None where it depends on the shapes of what a rank updates."""


def states(row: Sharding, parameters: Counted, held: Dtypes, shard_size: Size) -> States:
    """Divide what the strategy divides; the fp32 master counts with the optimizer that holds it."""
    whole = sum(p.elements * times for p, times in parameters)
    shard = shard_elements(row, parameters, shard_size)
    return States(
        parameters_bytes=(shard if row.divides_parameters else whole) * held.parameter,
        gradients_bytes=(shard if row.divides_gradients else whole) * held.gradient,
        optimizer_bytes=None
        if held.optimizer is None
        else (shard if row.divides_optimizer else whole) * held.optimizer,
    )


def shard_elements(row: Sharding, parameters: Counted, ranks: Size) -> Size:
    """Elements that one rank owns of what is divided, padding included. [elements]"""
    total = sum(p.elements * times for p, times in parameters)
    if row.padding == "flat":
        return flat_shard_elements(total, ranks)
    if row.padding == "even":
        return ceil_div(total, ranks)
    if row.padding == "packed":
        sizes = (p.elements for p, times in parameters for _ in range(times))
        return max(sum(share) for share in packed(sizes, ranks))
    per_parameter: dict[str, Callable[[Parameter, Size], Size]] = {
        "dim0": dim0_shard_elements,
        "per-parameter": even_shard_elements,
        "none": lambda parameter, _: parameter.elements,
    }
    return sum(per_parameter[row.padding](p, ranks) * times for p, times in parameters)
