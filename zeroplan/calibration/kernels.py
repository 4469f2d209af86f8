"""What kernels by themselves tell of a GPU: matrix products, and copies within the memory."""

from collections.abc import Sequence
from math import exp
from statistics import median
from typing import Final

from zeroplan.calibration.constants import CONTRADICTION, Told, constant, too_few
from zeroplan.calibration.products import (
    LONE_STREAM,
    Product,
    Rates,
    fit_products,
    log_error,
    priced_alone,
)
from zeroplan.calibration.residuals import ninth_in_ten
from zeroplan.compute.gemm import gemm_seconds
from zeroplan.errors import SpecError
from zeroplan.hardware import Gpu
from zeroplan.records import dataclass, replace
from zeroplan.units import DTYPE_BYTES, MIB

__all__ = ["Stream", "other_dtype_constants", "product_constants", "stream_constants"]

FEWEST_PRODUCTS: Final = 4
FEWEST_COPIES: Final = 3
"""Points that a constant needs. [count]"""
STREAM_BYTES: Final = 64 * MIB
"""Smallest copy that no cache holds. [B]"""
STARTS: Final = 10.0
"""Products this many times longer than their start tell of rates, shorter ones of the start. [1]"""
DEPTHS: Final = 4.0
"""Largest over smallest inner dimension from which the depth can be told. [1]"""
SIXTEEN_BIT: Final = ("bf16", "fp16")
"""Dtypes of `matmul_efficiency`; another has its own entry."""
KEYS: Final = {
    "efficiency": "matmul_efficiency",
    "depth": "matmul_depth_elements",
    "start": "matmul_start_seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A copy within the memory: so many bytes read, and as many written."""

    bytes: int
    seconds: float


def product_constants(gpu: Gpu, products: Sequence[Product]) -> Told:
    """Yield what products in 16 bit tell of the three constants of a matmul."""
    mine = [each for each in products if each.dtype in SIXTEEN_BIT]
    rates = _rates(gpu)
    large = [each for each in mine if _is_bound_by_rate(gpu, each, rates)]
    small = [each for each in mine if each.seconds < STARTS * rates.start]
    depths = [float(each.product.k) for each in large]
    lacking = {
        "efficiency": too_few(len(large), FEWEST_PRODUCTS, "large products in 16 bit"),
        "depth": too_few(len(large), FEWEST_PRODUCTS, "large products in 16 bit")
        or ("" if max(depths) >= DEPTHS * min(depths) else "inner dimensions too much alike"),
        "start": too_few(len(small), FEWEST_PRODUCTS, "small products in 16 bit"),
    }
    whole = lacking["efficiency"]
    free = [name for name, why in lacking.items() if not (why or whole)]
    for name in (each for each in lacking if each not in free):
        yield KEYS[name], lacking[name] or whole
    if free:
        yield from _fitted_products(gpu, mine, rates, free)


def _fitted_products(gpu: Gpu, mine: Sequence[Product], rates: Rates, free: Sequence[str]) -> Told:
    fitted = fit_products(gpu, mine, rates, free)
    errors = [abs(exp(log_error(gpu, each, fitted)) - 1) for each in mine]
    _refuse_impossible(gpu, fitted.efficiency)
    worst = ninth_in_ten(errors)
    if worst > CONTRADICTION:
        why = f"products contradict each other: one in ten is {worst:.0%} off"
        yield from ((KEYS[name], why) for name in free)
        return
    before = {name: getattr(gpu, KEYS[name]) for name in free}
    depths = [float(each.product.k) for each in mine]
    valid = f"inner dimensions from {min(depths):,.0f} to {max(depths):,.0f}"
    for name in free:
        found, told = before[name], getattr(fitted, name)
        # times hardly depend on depth and start: their errors say little of these two
        band = 0.0 if name == "efficiency" else found.rel_uncertainty or 0.0
        yield constant(KEYS[name], found, told, "fitted", errors=errors, valid=valid, band=band)


def other_dtype_constants(gpu: Gpu, products: Sequence[Product]) -> Told:
    """Yield the efficiency in another dtype, over its own peak."""
    others = sorted({each.dtype for each in products} - {*SIXTEEN_BIT})
    for dtype in others:
        key = f"matmul_efficiency_by_dtype.{dtype}"
        mine = [each for each in products if each.dtype == dtype]
        why = too_few(len(mine), FEWEST_PRODUCTS, f"products in {dtype}")
        if dtype not in gpu.peak_flop_per_second:
            why = f"{gpu.id} has no peak in {dtype}"
        if why:
            yield key, why
            continue
        fitted = fit_products(gpu, mine, _rates(gpu), ("efficiency",))
        _refuse_impossible(gpu, fitted.efficiency)
        errors = [abs(exp(log_error(gpu, each, fitted)) - 1) for each in mine]
        before = gpu.matmul_efficiency_by_dtype.get(dtype)
        yield constant(
            key, before, fitted.efficiency, "fitted", errors=errors, valid=f"products in {dtype}"
        )


def stream_constants(gpu: Gpu, streams: Sequence[Stream]) -> Told:
    """Yield the share of the memory bandwidth, as far as copies by themselves differ from others.

    A step's pointwise kernels reach less than a copy alone. That ratio is kept; what is measured
    here is how far this memory is from the usual one.
    """
    key = "hbm_efficiency"
    large = [each for each in streams if each.bytes >= STREAM_BYTES]
    why = too_few(len(large), FEWEST_COPIES, f"copies of {STREAM_BYTES // MIB} MiB or more")
    if why:
        yield key, why
        return
    peak = gpu.hbm_bytes_per_second.value
    shares = [2 * each.bytes / each.seconds / peak for each in large]
    share = median(shares)
    if share > 1:
        raise SpecError(
            f"copies reach {share:.0%} of the memory bandwidth of {gpu.id}: it is another GPU."
        )
    value = min(1.0, gpu.hbm_efficiency.value * share / LONE_STREAM)
    sizes = [each.bytes / MIB for each in large]
    yield constant(
        key,
        gpu.hbm_efficiency,
        value,
        "fitted",
        errors=[abs(share / each - 1) for each in shares],
        valid=f"copies of {min(sizes):,.0f} to {max(sizes):,.0f} MiB alone reach {share:.3g} of the peak, "
        f"the usual {LONE_STREAM:g}; scaled by that",
        band=gpu.hbm_efficiency.rel_uncertainty or 0.0,
    )


def _rates(gpu: Gpu) -> Rates:
    return Rates(
        efficiency=gpu.matmul_efficiency.value,
        depth=gpu.matmul_depth_elements.value,
        start=gpu.matmul_start_seconds.value,
    )


def _is_bound_by_rate(gpu: Gpu, each: Product, rates: Rates) -> bool:
    """Whether a product's time is that of its FLOPs, not of its bytes or its start."""
    price = priced_alone(gpu, each.dtype, rates)
    halved = replace(price, flop_per_second=price.flop_per_second / 2)
    size = DTYPE_BYTES[each.dtype]
    slower = gemm_seconds(each.product, size, halved) - gemm_seconds(each.product, size, price)
    return each.seconds > STARTS * rates.start and slower > each.seconds / 2


def _refuse_impossible(gpu: Gpu, efficiency: float) -> None:
    if efficiency >= 1:
        raise SpecError(f"products reach more than the peak of {gpu.id}: it is another GPU.")
