"""One step as it was predicted or as it happened: both fill the same record."""

from typing import Final, Literal

from zeroplan.estimation.record import PhasePeaks
from zeroplan.records import dataclass

__all__ = [
    "PHASES",
    "Backend",
    "Calls",
    "Held",
    "ModelClass",
    "Observation",
    "Phase",
]

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
