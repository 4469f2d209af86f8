"""A number, or a choice of profile, that cannot be made without its kind and source."""

from typing import Final, Literal, get_args

from zeroplan.errors import SpecError, perhaps
from zeroplan.records import dataclass

__all__ = ["KINDS", "Choice", "Kind", "Quantity", "unit_of"]

Kind = Literal["datasheet", "measured", "fitted", "assumed"]
"""Stated by the maker, seen on a machine, fitted to measurements, or judged by us."""

KINDS: Final = get_args(Kind)

_UNITS: Final = {
    "bytes_per_second": "B/s",
    "flop_per_second": "FLOP/s",
    "bytes": "B",
    "seconds": "s",
    "watts": "W",
    "usd_per_hour": "USD/h",
}
"""Unit by the end of a key; the longer endings come first."""


def unit_of(key: str) -> str:
    """Return the unit that a key ends in; counts and shares have the unit 1."""
    return next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number with its unit and where it comes from."""

    value: float
    """Scalar in SI base units."""
    unit: str
    """Unit of the value, `1` for counts and shares."""
    kind: Kind
    """How the number is known."""
    source: str
    """Key in `sources.toml`."""
    rel_uncertainty: float | None = None
    """Half-width of the band that should hold nine cases in ten, as a share of the value."""
    note: str = ""
    """What a reader should know before relying on the number."""

    def __post_init__(self) -> None:
        _check_origin(self.kind, self.source)
        if self.kind in {"fitted", "assumed"} and self.rel_uncertainty is None:
            message = f"rel_uncertainty is missing: a number that is {self.kind} needs one."
            raise SpecError(message)
        if self.rel_uncertainty is not None and self.rel_uncertainty <= 0:
            message = f"rel_uncertainty is {self.rel_uncertainty}: it must be above 0."
            raise SpecError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The id of another profile, with who says that it belongs here."""

    value: str
    """Profile id."""
    kind: Kind
    """How the choice is known."""
    source: str
    """Key in `sources.toml`."""
    note: str = ""
    """What a reader should know before relying on the choice."""

    def __post_init__(self) -> None:
        _check_origin(self.kind, self.source)


def _check_origin(kind: str, source: str) -> None:
    if kind not in KINDS:
        message = f"kind is {kind!r}: it must be one of {', '.join(KINDS)}.{perhaps(kind, KINDS)}"
        raise SpecError(message)
    if not source:
        message = "source is empty: name a key of sources.toml."
        raise SpecError(message)
