"""What a search finds."""

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from zeroplan import __version__
from zeroplan.estimation.record import SCHEMA_VERSION, Budget, Estimate, Verdict
from zeroplan.records import dataclass
from zeroplan.rows import frame, html, plain
from zeroplan.search.blocks import Refusal
from zeroplan.spec.run import Strategy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OBJECTIVES", "Choice", "NearMiss", "Nearest", "Objective", "Search"]

Objective = Literal["fastest", "cheapest", "fewest-gpus", "most-headroom"]

OBJECTIVES: Final[dict[Objective, str]] = {
    "fastest": "Fastest",
    "cheapest": "Cheapest",
    "fewest-gpus": "Fewest GPUs",
    "most-headroom": "Most headroom",
}
"""What can be best, and how a sentence about it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One plan with the figures by which it is chosen."""

    keys: dict[str, object]
    """The values that make it, by dotted key."""
    gpu: str
    gpus: int
    verdict: Verdict
    device_bytes: int
    usable_bytes: int
    headroom_bytes: int
    step_seconds: float
    low_seconds: float
    high_seconds: float
    exposed_communication_seconds: float
    tokens_per_second: float
    """Of all GPUs together."""
    model_flops_utilization: float
    gpu_hours_per_million_tokens: float
    price_usd_per_gpu_hour: float | None
    """As given, else that of the node type; None where no price is known."""
    price_source: str | None
    usd_per_million_tokens: float | None
    """None where no price is known."""
    hypothetical: str | None
    """How its GPUs are joined as no machine joins so many, in words; None where machines do."""

    @property
    def label(self) -> str:
        """What stands behind its GPUs, or its name, where no machine has them so."""
        return "" if self.hypothetical is None else " (hypothetical)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A plan that would have been better, and the limit that it violates."""

    choice: Choice
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A plan that does not fit, and how much memory it lacks; nobody asked its time."""

    keys: dict[str, object]
    """The values that make it, by dotted key."""
    strategy: Strategy | None
    gpu: str
    gpus: int
    device_bytes: int
    usable_bytes: int
    missing_bytes: int
    """By how much a GPU is too small."""
    hypothetical: str | None
    """As of a `Choice`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Search:
    """The best of many plans."""

    objective: Objective
    searched: dict[str, tuple[object, ...]]
    """The keys that had several values, and those."""
    plans: int
    """Plans that were priced. [count]"""
    fitting: int
    """Those that fit. [count]"""
    refused: tuple[Refusal, ...]
    """Combinations that cannot be, by reason."""
    best: tuple[Choice, ...]
    """Best first, at most one for each structure and machine; hypothetical ones come last."""
    frontier: tuple[Choice, ...]
    """Plans than which none is both faster and on fewer GPUs, or, of those whose price is known,
    where there are any, less expensive by the hour; no hypothetical ones beside real ones."""
    near_misses: tuple[NearMiss, ...]
    nearest: Nearest | None
    """Where nothing fits, not even nearly: the plan that lacks least."""
    estimate: Estimate | None
    """The whole answer for the best."""
    interrupted: bool
    """Whether the search was stopped before its end."""

    @property
    def chosen(self) -> Choice | None:
        """The best; None where nothing fits."""
        return self.best[0] if self.best else None

    @property
    def budget(self) -> Budget | None:
        """What a number of tokens takes with the best, where that is asked."""
        return None if self.estimate is None else self.estimate.estimates[0].budget

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, in the order of the JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "zeroplan_version": __version__,
            "objective": self.objective,
            "searched": plain(self.searched),
            "plans": self.plans,
            "fitting": self.fitting,
            "refused": plain(self.refused),
            "best": plain(self.best),
            "frontier": plain(self.frontier),
            "near_misses": plain(self.near_misses),
            "nearest": plain(self.nearest),
            "estimate": None if self.estimate is None else self.estimate.to_dict(),
            "interrupted": self.interrupted,
        }

    def to_json(self) -> str:
        """Return the result as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row for each of the best plans, in SI base units."""
        rows = [
            {"place": place, **each["keys"], **{k: v for k, v in each.items() if k != "keys"}}
            for place, each in enumerate(plain(self.best), 1)
        ]
        return frame(rows, index="place")

    def __repr__(self) -> str:
        nothing = "stopped before anything that fits" if self.interrupted else "nothing fits"
        named = nothing if self.chosen is None else str(self.chosen.keys)
        return f"Search({self.plans:,} plans, {self.fitting:,} fit; {self.objective}: {named})"

    def _repr_html_(self) -> str:
        from zeroplan.search.tables import tables  # noqa: PLC0415  # a cycle

        return "".join(map(html, tables(self)))
