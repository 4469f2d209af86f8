"""Units: SI base units inside, scaled here and only here.

GiB is 2^30 bytes and GB is 10^9 bytes; the two are never mixed.
"""

from typing import Any, Final

from zeroplan.records import dataclass

__all__ = [
    "ALLOCATION_BYTES",
    "DAY",
    "DTYPE_BYTES",
    "FP8",
    "FP32",
    "GB",
    "GIB",
    "GIGA",
    "GIGABIT",
    "HOUR",
    "INT64",
    "MEGA",
    "MIB",
    "MICRO",
    "MILLI",
    "SCALES",
    "TERA",
    "Guess",
    "Size",
    "ceil_div",
    "doublings",
    "floor",
    "maximum",
    "minimum",
    "power_of_two",
    "round_up",
    "some",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A figure that nobody has measured for this run, and how far off it may be."""

    name: str
    value: float
    rel_uncertainty: float
    """Half-width of the band that should hold nine cases in ten, as a share of the value."""
    unit: str
    source: str


Size = Any
"""A number, or a numpy array of numbers when many plans are priced together."""

MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9
MICRO: Final = 1e-6
MILLI: Final = 1e-3
MEGA: Final = 10**6
GIGA: Final = 10**9
TERA: Final = 10**12
GIGABIT: Final = 10**9 / 8
"""Bytes per second in one Gbit/s."""

SCALES: Final = {
    "B": (GIB, "GiB"),
    "B/s": (GB, "GB/s"),
    "FLOP/s": (TERA, "TFLOP/s"),
    "s": (MICRO, "us"),
    "1": (1, ""),
}
"""What a person reads for a unit of hardware's figures; programs read SI base units."""

HOUR: Final = 3600
"""[s]"""
DAY: Final = 24 * HOUR
"""[s]"""

ALLOCATION_BYTES: Final = 512
"""The CUDA caching allocator rounds every block up to this (c10/core/AllocatorConfig.h, 2.13)."""

FP8: Final = 1
"""Bytes of an fp8 number. [B]"""
FP32: Final = 4
"""Bytes of an fp32 number. [B]"""
INT64: Final = 8
"""Bytes of an index. [B]"""

DTYPE_BYTES: Final = {"fp32": FP32, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def ceil_div(numerator: Size, denominator: Size) -> Size:
    """Return the quotient rounded up, for numbers and arrays alike."""
    return -(-numerator // denominator)


def round_up(size: Size, multiple: Size = ALLOCATION_BYTES) -> Size:
    """Return the size rounded up to a multiple."""
    return -(-size // multiple) * multiple


def floor(value: Size) -> Size:
    """Return the whole part, for numbers and arrays alike."""
    return int(value) if _plain(value) else value // 1


def maximum(a: Size, b: Size) -> Size:
    """Return the larger of two, element by element where either is an array."""
    return max(a, b) if _plain(a) and _plain(b) else a * (a >= b) + b * (a < b)


def minimum(a: Size, b: Size) -> Size:
    """Return the smaller of two, element by element where either is an array."""
    return min(a, b) if _plain(a) and _plain(b) else a * (a <= b) + b * (a > b)


def power_of_two(value: Size) -> Size:
    """Return the least power of two that is not below a value of 1 or more."""
    power = 1
    result: Size = power * (value > 0)
    while some(result < value):
        power *= 2
        result = result + (power - result) * (result < value)
    return result


def doublings(value: Size) -> Size:
    """Return how often 1 must be doubled to reach a value of 1 or more: log2, rounded up."""
    power, count = 1, 0
    result: Size = count * (value > 0)
    while some(power < value):
        result = result + (power < value)
        power *= 2
    return result


def some(size: Size) -> bool:
    """Whether a number, or any element of an array, is not zero."""
    return bool(size) if _plain(size) else bool(size.any())


def _plain(value: Size) -> bool:
    return isinstance(value, (int, float))
