"""How far a prediction is from what a run showed."""

import json
from typing import Any, Final, Literal

from zeroplan import __version__
from zeroplan.estimation.record import Verdict
from zeroplan.records import dataclass
from zeroplan.rows import plain
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_dict
from zeroplan.validate.measurement import RunRecord
from zeroplan.validate.record import ModelClass, Observation

__all__ = ["Difference", "Validation"]

SCHEMA_VERSION: Final = 1

Kind = Literal["peak", "held", "calls", "message", "memory", "seconds"]
"""A peak, what makes one up, a number of collectives, their bytes; memory beyond tensors and times,
which are predicted with a band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure on both sides."""

    name: str
    predicted: float
    """[B], [s], or a count where the kind is calls."""
    measured: float
    kind: Kind
    low: float | None = None
    """The band of the prediction, where it has one."""
    high: float | None = None

    @property
    def judged(self) -> bool:
        """Whether the tolerance applies.

        What makes a peak up may be a few bytes, and what has a band is held to that.
        """
        return self.kind in ("peak", "calls", "message")

    @property
    def in_band(self) -> bool | None:
        """Whether what was measured lies inside the prediction's band; None without one."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def error_fraction(self) -> float | None:
        """Predicted over measured, less one; None where something was predicted but not there."""
        if self.predicted == self.measured:
            return 0.0
        return self.predicted / self.measured - 1 if self.measured else None

    def within(self, tolerance: float) -> bool:
        """Whether it is as near as asked."""
        error = self.error_fraction
        return error is not None and abs(error) <= tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Prediction and run side by side."""

    record: RunRecord
    prediction: Observation
    predicted_verdict: Verdict
    """Whether the model was said to fit."""
    differences: tuple[Difference, ...]
    """None where memory ran out."""
    tolerance: float
    """Largest error of a judged figure. [1]"""
    notes: tuple[str, ...]

    @property
    def inputs(self) -> Run:
        """The run."""
        return self.record.inputs

    @property
    def model_class(self) -> ModelClass:
        """Whose module ran."""
        return self.record.model_class

    @property
    def truth(self) -> Observation | None:
        """The step that ran; None where memory ran out."""
        measured = self.record.measured
        return None if measured is None else measured.step

    @property
    def inside(self) -> bool:
        """Whether every judged figure is within the tolerance.

        Where memory ran out, the prediction holds unless it said that the model fits.
        """
        if self.truth is None:
            return self.predicted_verdict != "fits"
        return all(each.within(self.tolerance) for each in self.differences if each.judged)

    @property
    def largest(self) -> Difference:
        """The judged figure that is furthest off."""
        judged = (each for each in self.differences if each.judged)
        return max(judged, key=lambda each: abs(_or_infinite(each.error_fraction)))

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "zeroplan_version": __version__,
            "inputs": to_dict(self.inputs),
            "backend": self.record.backend,
            "pretended": self.record.pretended,
            "model_class": self.model_class,
            "machine": plain(self.record.machine),
            "versions": self.record.versions,
            "outcome": plain(self.record.outcome),
            "predicted_verdict": self.predicted_verdict,
            "tolerance_fraction": self.tolerance,
            "inside_tolerance": self.inside,
            "notes": plain(self.notes),
            "prediction": plain(self.prediction),
            "truth": plain(self.truth),
            "differences": [
                {**plain(each), "in_band": each.in_band, "error_fraction": each.error_fraction}
                for each in self.differences
            ],
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)


def _or_infinite(error: float | None) -> float:
    return float("inf") if error is None else error
