"""A GPU's matmul rates from matrix products that were timed by themselves."""

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Final

from zeroplan.compute.gemm import gemm_seconds
from zeroplan.compute.gpu import GpuPrice, gpu_price
from zeroplan.hardware import Gpu
from zeroplan.records import dataclass, fields, replace
from zeroplan.units import DTYPE_BYTES
from zeroplan.workload.tape import Matmul

__all__ = ["LONE_STREAM", "Product", "Rates", "fit_products", "log_error", "priced_alone"]

LONE_STREAM: Final = 0.9
"""Share of the memory bandwidth that a streaming kernel by itself reaches, as on H100 and A100. [1]"""

LEAST: Final = {"efficiency": 0.05, "depth": 1.0, "start": 0.5e-6}
MOST: Final = {"efficiency": 1.0, "depth": 1000.0, "start": 50e-6}
ROUNDS: Final = 25
"""Times that every constant is moved."""
NUDGE: Final = 0.02
"""Relative change by which a constant's effect is found."""
SMALL: Final = 0.02
"""Errors below this are squared, not weighted: timings repeat no better. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product that ran alone on a GPU."""

    product: Matmul
    dtype: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The three constants of `zeroplan.compute.gemm`."""

    efficiency: float
    """Share of the peak that large, deep products reach. [1]"""
    depth: float
    """Inner dimension at which a product takes twice as long per FLOP. [elements]"""
    start: float
    """Time before the first FLOP. [s]"""


def fit_products(
    gpu: Gpu, products: Sequence[Product], rates: Rates, free: Iterable[str] | None = None
) -> Rates:
    """Fit the free constants by least absolute errors, each in turn, squares weighted by 1/error."""
    names = [spec.name for spec in fields(rates)] if free is None else list(free)
    for _ in range(ROUNDS):
        for name in names:
            value: float = getattr(rates, name)
            more = replace(rates, **{name: value * (1 + NUDGE)})
            top = bottom = 0.0
            for each in products:
                now = log_error(gpu, each, rates)
                slope = (log_error(gpu, each, more) - now) / log(1 + NUDGE)
                weight = slope / max(abs(now), SMALL)
                top, bottom = top - weight * now, bottom + weight * slope
            moved = value * exp(top / bottom) if bottom else value
            rates = replace(rates, **{name: min(max(moved, LEAST[name]), MOST[name])})
    return rates


def log_error(gpu: Gpu, each: Product, rates: Rates) -> float:
    """Return the logarithm of predicted over measured."""
    price = priced_alone(gpu, each.dtype, rates)
    return log(gemm_seconds(each.product, DTYPE_BYTES[each.dtype], price) / each.seconds)


def priced_alone(gpu: Gpu, dtype: str, rates: Rates) -> GpuPrice:
    """Return a GPU that runs nothing but one product."""
    price = gpu_price(gpu, dtype)
    return replace(
        price,
        flop_per_second=price.peak_flop_per_second * rates.efficiency,
        matmul_depth=rates.depth,
        matmul_start_seconds=rates.start,
        bytes_per_second=LONE_STREAM * gpu.hbm_bytes_per_second.value,
    )
