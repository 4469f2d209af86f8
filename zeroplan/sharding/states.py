"""The three states of the ZeRO paper, per rank: parameters, gradients, optimizer."""

from collections.abc import Callable, Sequence

from zeroplan.records import dataclass
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.layout import (
    dim0_shard_elements,
    flat_shard_elements,
    packed,
    per_parameter_shard_elements,
)
from zeroplan.sharding.offload import RESIDENT, Offloading
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import Offload
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
    """None where it depends on which pieces a rank updates."""


def states(
    row: Sharding,
    parameters: Counted,
    held: Dtypes,
    shard_size: Size,
    *,
    offload: Offloading = RESIDENT,
) -> States:
    """Divide what the strategy divides; the fp32 master counts with the optimizer that holds it.

    What is frozen has neither gradient nor states; scales of quantised weights stay whole. What
    lives in host memory is not the GPU's. Of a flat parameter that is trained in part, how much a
    rank updates depends on where its shard begins.
    """
    graded = [(p, times) for p, times in parameters if p.gets_gradient]
    gradients = _held_elements(row, graded, shard_size, divided=row.divides_gradients)
    trained = [(p, times) for p, times in graded if p.trainable]
    updated = _held_elements(row, trained, shard_size, divided=row.divides_optimizer)
    stored = _parameters_bytes(row, parameters, held, shard_size)
    unknown = held.optimizer is None or any(p.flattened for p, _ in parameters)
    return States(
        parameters_bytes=_on_gpu(offload.parameters) * stored,
        gradients_bytes=_on_gpu(offload.gradients) * gradients * held.gradient,
        optimizer_bytes=None if unknown else _on_gpu(offload.optimizer) * updated * held.optimizer,
    )


def _on_gpu(place: Offload) -> int:
    return int(place == "none")


def _held_elements(row: Sharding, parameters: Counted, ranks: Size, *, divided: bool) -> Size:
    if divided:
        return shard_elements(row, parameters, ranks)
    return sum(p.elements * times for p, times in parameters)


def _parameters_bytes(row: Sharding, parameters: Counted, held: Dtypes, ranks: Size) -> Size:
    """Sum the stored parameters, those of one dtype at a time. [B]"""
    by_itemsize: dict[int, list[tuple[Parameter, int]]] = {}
    for parameter, times in parameters:
        by_itemsize.setdefault(held.stored(parameter), []).append((parameter, times))
    total = sum(parameter.constants_bytes * times for parameter, times in parameters)
    for itemsize, alike in by_itemsize.items():
        elements = sum(p.elements * times for p, times in alike)
        if row.divides_parameters:
            elements = shard_elements(row, alike, ranks)
        total += elements * itemsize
    return total


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
        "per-parameter": per_parameter_shard_elements,
        "none": lambda parameter, _: parameter.elements,
    }
    return sum(per_parameter[row.padding](p, ranks) * times for p, times in parameters)
