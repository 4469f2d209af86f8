"""One constant of a GPU as records tell it, with its residual and what the points cover."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from zeroplan.calibration.residuals import ninth_in_ten
from zeroplan.hardware import Quantity
from zeroplan.hardware.quantity import Kind, unit_of
from zeroplan.records import dataclass

__all__ = ["CONTRADICTION", "GpuConstant", "Told", "constant", "too_few"]

SOURCE: Final = "records"
"""Key of the source of what comes from records of runs."""
CONTRADICTION: Final = 0.25
"""Error of one point in ten beyond which the points contradict each other. [1]"""
LEAST_BAND: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstant:
    """One constant that the records tell."""

    key: str
    before: Quantity | None
    """None where the profile had none."""
    after: Quantity
    points: int
    median_error: float
    """Of |predicted / measured - 1| on the points. [1]"""
    p90_error: float
    valid: str
    """What the points cover."""


Told = Iterator[GpuConstant | tuple[str, str]]
"""Constants, and keys with the reason why they stay."""


def constant(
    key: str,
    before: Quantity | None,
    value: float,
    kind: Kind,
    *,
    errors: Sequence[float],
    valid: str,
    band: float = 0.0,
) -> GpuConstant:
    """Return a constant whose band holds nine points in ten."""
    worst = ninth_in_ten(errors)
    return GpuConstant(
        key=key,
        before=before,
        after=Quantity(
            value=float(f"{value:.4g}"),
            unit=unit_of(key),
            kind=kind,
            source=SOURCE,
            rel_uncertainty=float(f"{max(LEAST_BAND, worst, band):.2g}"),
            note=f"{len(errors)} points, median error {median(errors):.1%}; {valid}",
        ),
        points=len(errors),
        median_error=median(errors),
        p90_error=worst,
        valid=valid,
    )


def too_few(found: int, needed: int, what: str) -> str:
    """Say what is lacking; nothing if enough is there."""
    return "" if found >= needed else f"{found} of {needed} {what} needed"
