"""What whole steps tell of a GPU: reserved memory, and what is left of a lone kernel's rate."""

from collections.abc import Sequence
from math import exp, log
from statistics import median
from typing import Final

from zeroplan.calibration.constants import CONTRADICTION, Told, constant, too_few
from zeroplan.calibration.residuals import ninth_in_ten
from zeroplan.calibration.runs import RunPoint, compute_seconds, pools_bytes
from zeroplan.hardware import Gpu
from zeroplan.records import replace
from zeroplan.rows import significant
from zeroplan.units import GIB

__all__ = ["fragmentation_constant", "load_constant"]

FEWEST_RUNS: Final = 2
"""Points that a constant needs. [count]"""
LEAST_SHARE: Final = 1e-3
"""A profile's numbers are above 0. [1]"""
SLOWEST: Final = 0.1
"""Least share of a lone kernel's rate that is tried. [1]"""
HALVINGS: Final = 30


def fragmentation_constant(gpu: Gpu, runs: Sequence[RunPoint]) -> Told:
    """Yield by how much reserved memory exceeds what the pools reach."""
    key = "fragmentation"
    known = [each for each in runs if each.reserved_bytes is not None]
    why = too_few(len(known), FEWEST_RUNS, "runs with their reserved memory")
    if why:
        yield key, why
        return
    pools = [pools_bytes(each, gpu) for each in known]
    reserved = [each.reserved_bytes or 0.0 for each in known]
    excess = [held / pool - 1 for held, pool in zip(reserved, pools, strict=True)]
    value = max(LEAST_SHARE, median(excess))
    errors = [
        abs(pool * (1 + value) / held - 1) for held, pool in zip(reserved, pools, strict=True)
    ]
    if ninth_in_ten(errors) > CONTRADICTION:
        yield key, f"runs contradict each other: {min(excess):.0%} to {max(excess):.0%}"
        return
    band = max(abs(each - value) for each in excess) / value
    valid = f"{len(known)} runs that hold {_gib(reserved)} GiB"
    yield constant(key, gpu.fragmentation, value, "measured", errors=errors, valid=valid, band=band)


def load_constant(gpu: Gpu, runs: Sequence[RunPoint]) -> Told:
    """Yield what a step leaves of a lone kernel's rate, fitted to the compute time of whole steps."""
    key = "load_share"
    known = [each for each in runs if each.compute_seconds is not None]
    why = too_few(len(known), FEWEST_RUNS, "runs with their compute time")
    if why:
        yield key, why
        return

    def errors(share: float) -> list[float]:
        trial = replace(gpu, load_share=replace(gpu.load_share, value=share))
        return [log(compute_seconds(x, trial) / (x.compute_seconds or 1.0)) for x in known]

    low, high = SLOWEST, 1.0
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if median(errors(middle)) > 0 else (low, middle)
    value = (low * high) ** 0.5
    off = [abs(exp(each) - 1) for each in errors(value)]
    if max(off) > CONTRADICTION:
        worst = known[off.index(max(off))]
        yield key, f"runs contradict each other: {worst.name} is {max(off):.0%} off"
        return
    times = [1e3 * (each.compute_seconds or 0.0) for each in known]
    valid = f"{len(known)} runs that compute for {significant(min(times))} to {significant(max(times))} ms"
    yield constant(key, gpu.load_share, value, "fitted", errors=off, valid=valid)


def _gib(sizes: Sequence[float]) -> str:
    return f"{min(sizes) / GIB:.3g} to {max(sizes) / GIB:.3g}"
