"""What a real step showed, and how far a prediction is from it.

Both sides fill the same records, so that comparing is subtraction.
"""

import json
from typing import Any, Final, Literal

from zeroplan import __version__
from zeroplan.estimation.record import PhasePeaks
from zeroplan.records import dataclass
from zeroplan.rows import plain
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_dict

__all__ = [
    "PHASES",
    "Backend",
    "Calls",
    "Difference",
    "Held",
    "ModelClass",
    "Observation",
    "Phase",
    "Validation",
]

SCHEMA_VERSION: Final = 1

Backend = Literal["fake", "cpu", "cuda"]
ModelClass = Literal["own", "transformers"]
Phase = Literal["forward", "backward", "optimizer"]
PHASES: Final[tuple[Phase, ...]] = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """All calls of one collective in one phase of a step, on one rank."""

    name: str
    phase: Phase
    count: int
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What lives at moments that both sides can name, each storage rounded up to 512 bytes. [B]"""

    parameters: int
    optimizer: int
    inputs_and_buffers: int
    """Kept logits included."""
    after_forward: int
    """Above the states at the end of the first forward: activations, gathered parameters."""
    gradients: int
    """Above parameters, optimizer states and inputs at the end of backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One step, as predicted or as it happened."""

    peak_by_phase_bytes: PhasePeaks
    moments: tuple[str, ...]
    """Where the peak of each phase falls, in the order of the phases."""
    peak_before_update_bytes: int | None
    """The highest of the first forward and backward, when there are no optimizer states yet; None
    where no update follows."""
    held_bytes: Held
    collectives: tuple[Calls, ...]
    step_seconds: tuple[float, ...]
    """Steps that were timed; none where tensors have no data, or in a prediction. [s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure on both sides."""

    name: str
    predicted: int
    """[B], or a count where the kind is calls."""
    measured: int
    kind: Literal["peak", "held", "calls", "message"]
    """A peak, what makes one up, a number of collectives, or their bytes."""

    @property
    def judged(self) -> bool:
        """Whether the tolerance applies: what makes a peak up may be a few bytes."""
        return self.kind != "held"

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
    """Prediction and truth side by side."""

    inputs: Run
    backend: Backend
    model_class: ModelClass
    versions: tuple[tuple[str, str], ...]
    """Of the packages that ran the step, by name."""
    tolerance: float
    """Largest error of a judged figure. [1]"""
    notes: tuple[str, ...]
    prediction: Observation
    truth: Observation
    differences: tuple[Difference, ...]

    @property
    def inside(self) -> bool:
        """Whether every judged figure is within the tolerance."""
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
            "backend": self.backend,
            "model_class": self.model_class,
            "versions": dict(self.versions),
            "tolerance_fraction": self.tolerance,
            "inside_tolerance": self.inside,
            "notes": plain(self.notes),
            "prediction": plain(self.prediction),
            "truth": plain(self.truth),
            "differences": [
                {**plain(each), "error_fraction": each.error_fraction} for each in self.differences
            ],
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)


def _or_infinite(error: float | None) -> float:
    return float("inf") if error is None else error
