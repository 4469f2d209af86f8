"""A GPU's constants from records of runs."""

from collections.abc import Sequence
from typing import Any

from zeroplan.calibration.constants import GpuConstant, Told
from zeroplan.calibration.kernels import (
    Stream,
    other_dtype_constants,
    product_constants,
    stream_constants,
)
from zeroplan.calibration.products import Product
from zeroplan.calibration.runs import RunPoint
from zeroplan.calibration.whole_steps import fragmentation_constant, load_constant
from zeroplan.hardware import Gpu
from zeroplan.records import dataclass, replace

__all__ = ["GpuFit", "fitted_gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFit:
    """A GPU with new constants."""

    start: Gpu
    gpu: Gpu
    constants: tuple[GpuConstant, ...]
    kept: dict[str, str]
    """Why the others stay as they were, by key."""


def fitted_gpu(
    gpu: Gpu,
    products: Sequence[Product],
    streams: Sequence[Stream],
    runs: Sequence[RunPoint],
    *,
    dates: str,
) -> GpuFit:
    """Fit what the points tell: kernels by themselves first, then what a step leaves of them.

    Parameters
    ----------
    gpu
        The profile that is started from.
    products, streams
        Kernels that ran by themselves.
    runs
        Whole steps.
    dates
        When all that was measured; the constants' notes say it.

    Raises
    ------
    SpecError
        Products or copies are faster than the GPU can be: it is another one.

    """
    found: list[GpuConstant] = []
    kept: dict[str, str] = {}
    for told in (product_constants, other_dtype_constants):
        _take(told(gpu, products), dates, found, kept)
    _take(stream_constants(gpu, streams), dates, found, kept)
    _take(fragmentation_constant(gpu, runs), dates, found, kept)
    _take(load_constant(_with(gpu, found), runs), dates, found, kept)
    changed = replace(_with(gpu, found), revision=gpu.revision + 1)
    return GpuFit(start=gpu, gpu=changed, constants=tuple(found), kept=kept)


def _take(told: Told, dates: str, found: list[GpuConstant], kept: dict[str, str]) -> None:
    for each in told:
        if isinstance(each, GpuConstant):
            dated = replace(each.after, note=f"{dates}: {each.after.note}")
            found.append(replace(each, after=dated))
        else:
            kept[each[0]] = each[1]


def _with(gpu: Gpu, constants: Sequence[GpuConstant]) -> Gpu:
    for each in constants:
        name, _, dtype = each.key.partition(".")
        by_dtype = {**gpu.matmul_efficiency_by_dtype, dtype: each.after}
        changed: dict[str, Any] = {name: by_dtype if dtype else each.after}
        gpu = replace(gpu, **changed)
    return gpu
