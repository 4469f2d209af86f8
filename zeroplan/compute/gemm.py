"""Seconds of a matrix product."""

from zeroplan.compute.gpu import GpuPrice
from zeroplan.units import Size, maximum
from zeroplan.workload.tape import Matmul

__all__ = ["gemm_seconds"]


def gemm_seconds(product: Matmul, itemsize: int, price: GpuPrice, *, speed: float = 1.0) -> Size:
    """Time of an [m, k] by [k, n] product. [s]

    t = t0 + max(2 m n k / (e P) (1 + k0 / k), bytes / bandwidth): shallow products spend a larger
    share of their time on filling and emptying the pipeline. Fitted on published timings by shape;
    the profile's source says which. `speed` is the peak of what it runs in over that of the dtype
    that the price is of.
    """
    m, n, k = product.m, product.n, product.k
    compute = (
        product.flop / (price.flop_per_second * speed) * (1.0 + price.matmul_depth / maximum(k, 1))
    )
    moved = itemsize * (m * k + k * n + m * n) * product.count
    return price.matmul_start_seconds + maximum(compute, moved / price.bytes_per_second)
