"""The explanation: what `explain` returns and what its JSON holds, field for field, in this order."""

import json
from typing import Any, Literal, Protocol

from zeroplan import __version__
from zeroplan.estimation.record import SCHEMA_VERSION, Phase, StrategyEstimate, Verdict
from zeroplan.records import dataclass
from zeroplan.rows import html, plain
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_dict
from zeroplan.workload.changes import Category

__all__ = [
    "Accounting",
    "AccountingRow",
    "Buffer",
    "Explanation",
    "Moment",
    "Remedy",
    "Sensitivity",
    "Term",
    "document",
]


class Answering(Protocol):
    """What explains one run."""

    @property
    def inputs(self) -> Run:
        """The run with every default in its place."""


def as_dict(told: Answering) -> dict[str, Any]:
    """Return the fields of an explanation as plain values, in their order."""
    values: dict[str, Any] = plain(told)
    values["inputs"] = to_dict(told.inputs)
    return {"schema_version": SCHEMA_VERSION, "zeroplan_version": __version__, **values}


def document(told: Answering) -> str:
    """Return an explanation as one JSON document."""
    return json.dumps(as_dict(told), indent=2, allow_nan=False, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment at which memory stands higher than around it."""

    name: str
    phase: Phase
    event: str
    """What the framework is doing."""
    block: int | None
    tensor_bytes: int
    below_peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Live tensor storages of one owner, each rounded as the allocator does."""

    category: Category
    owner: str
    blocks: str
    """Blocks during which they were allocated: "0-78"; empty outside blocks."""
    count: int | None
    """Storages; None where they were told as one sum."""
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One figure and where it comes from."""

    name: str
    value: float
    unit: Literal["B", "s"]
    formula: str
    """The formula with its inputs in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change of the run that lowers the peak, and its price."""

    change: str
    """The keys to set."""
    saved_bytes: int
    """By how much the allocated peak falls. [B]"""
    peak_allocated_bytes: int
    device_bytes: int | None
    verdict: Verdict
    step_seconds: float
    extra_seconds: float
    """Longer step; negative where it is shorter. [s]"""
    extra_compute_seconds: float
    extra_exposed_seconds: float
    """Longer waiting for communication. [s]"""
    why: str
    """What it costs, in words."""
    tokens_per_second_per_gpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingRow:
    """One part of an accounting beside what lives at the peak."""

    name: str
    counted_bytes: int
    live_bytes: int
    why: str
    """Where the difference comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """A figure that others give for this strategy, and what stands between it and the peak."""

    name: str
    rows: tuple[AccountingRow, ...]
    """Their sums are the figure and `peak_allocated_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What an uncertain figure does to the answer at both ends of its band."""

    name: str
    value: float
    unit: str
    kind: str
    source: str
    rel_uncertainty: float
    """Half-width of the band, as a share of the value."""
    step_seconds: tuple[float, float]
    """Change of the step time at the lower and the upper end. [s]"""
    device_bytes: tuple[int, int]
    """Change of the device memory at the lower and the upper end. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation:
    """Every term of one strategy's estimate."""

    inputs: Run
    """The run with every default in its place."""
    chosen: str
    """Why this strategy: named, the fastest that fits, or the smallest."""
    estimate: StrategyEstimate
    peak: Moment
    buffers: tuple[Buffer, ...]
    """Everything live at the peak; sums to the peak's tensor bytes."""
    next_moments: tuple[Moment, ...]
    remedies: tuple[Remedy, ...]
    """Best first."""
    memory_terms: tuple[Term, ...]
    host_terms: tuple[Term, ...]
    """Of a node's host memory."""
    accounting: Accounting | None
    """DeepSpeed's own estimator, where it has one for the strategy."""
    time_terms: tuple[Term, ...]
    sensitivities: tuple[Sensitivity, ...]
    """Largest first."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, in the order of the JSON."""
        return as_dict(self)

    def to_json(self) -> str:
        """Return the explanation as one JSON document; a figure that is not a number is a bug."""
        return document(self)

    def __repr__(self) -> str:
        return f"Explanation({self.inputs.model.source}: {self.estimate.strategy}, {self.chosen})"

    def _repr_html_(self) -> str:
        from zeroplan.estimation.explain_tables import tables  # noqa: PLC0415  # a cycle

        return "".join(html(table) for table in tables(self))
