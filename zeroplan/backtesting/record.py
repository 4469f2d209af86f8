"""What a backtest returns: every prediction beside its measurement, and how far off they are."""

import csv
import json
from collections.abc import Iterable, Mapping
from io import StringIO
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from zeroplan.records import dataclass
from zeroplan.rows import Cell, Column, Table, frame, html, significant

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Backtest", "Metric", "Score", "Skip", "Summary", "summarise"]

Metric = Literal["step_seconds", "peak_bytes", "seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One prediction beside its measurement, in SI base units."""

    id: str
    source_id: str
    group: Mapping[str, str]
    """What it is summarised under: the source, or a collective's fabric, name and size class."""
    metric: Metric
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None
    filled_in: tuple[str, ...] = ()
    """Columns that were blank and got a default."""

    @property
    def error_fraction(self) -> float:
        """Predicted over measured, less one. [1]"""
        return self.predicted / self.measured - 1

    @property
    def inside_band(self) -> bool | None:
        """Whether the measurement lies in the predicted band; None where there is no band."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, in the order of the JSON."""
        return {
            "id": self.id,
            "source_id": self.source_id,
            **self.group,
            "metric": self.metric,
            "measured": self.measured,
            "predicted": self.predicted,
            "low": self.low,
            "high": self.high,
            "error_fraction": self.error_fraction,
            "filled_in": list(self.filled_in),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A row that was not predicted."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The errors of one group in one metric. [1]"""

    group: Mapping[str, str]
    metric: Metric
    rows: int
    median_abs_error: float
    p90_abs_error: float
    median_error: float
    share_inside_band: float | None
    """None where no prediction has a band."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, in the order of the JSON."""
        return {
            **self.group,
            "metric": self.metric,
            "rows": self.rows,
            "median_abs_error": self.median_abs_error,
            "p90_abs_error": self.p90_abs_error,
            "median_error": self.median_error,
            "share_inside_band": self.share_inside_band,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Backtest:
    """Every row of a table, predicted or skipped with its reason."""

    rows: tuple[Score, ...]
    skipped: tuple[Skip, ...]

    @property
    def summary(self) -> tuple[Summary, ...]:
        """The errors by group and metric, in the order of the table."""
        groups: dict[tuple[object, ...], list[Score]] = {}
        for score in self.rows:
            groups.setdefault((*score.group.values(), score.metric), []).append(score)
        return tuple(summarise(scores) for scores in groups.values())

    @property
    def overall(self) -> dict[Metric, float]:
        """The median over groups of their median absolute errors, by metric. [1]"""
        errors: dict[Metric, list[float]] = {}
        for each in self.summary:
            errors.setdefault(each.metric, []).append(each.median_abs_error)
        return {metric: median(medians) for metric, medians in errors.items()}

    def within(self, tolerance: float) -> bool:
        """Whether something was predicted and every overall figure is at most a tolerance [1]."""
        return bool(self.rows) and max(self.overall.values()) <= tolerance

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        return {
            "rows": [score.to_dict() for score in self.rows],
            "skipped": [{"id": skip.id, "why": skip.why} for skip in self.skipped],
            "summary": [each.to_dict() for each in self.summary],
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_csv(self) -> str:
        """Return one line per prediction, the columns that were filled in joined by spaces."""
        text = StringIO()
        rows = [score.to_dict() for score in self.rows]
        writer = csv.DictWriter(text, list(rows[0]) if rows else ["id"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"filled_in": " ".join(row["filled_in"])} for row in rows)
        return text.getvalue()

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per prediction and one column per value, in SI base units."""
        return frame((score.to_dict() for score in self.rows), index="id")

    def to_table(self) -> Table:
        """Return the summary, the overall figures last."""
        summary = self.summary
        heads = [name.removesuffix("_id") for name in (summary[0].group if summary else ())]
        return Table(
            title=f"Predicted against measured, {len(self.rows):,} figures",
            columns=(
                *(Column(name=head, is_text=True) for head in (*heads, "metric")),
                Column(name="rows"),
                *(Column(name=name, unit="%") for name in ("median error", "|error|", "p90")),
                Column(name="inside band", unit="%"),
            ),
            rows=(
                *(_cells(each) for each in summary),
                *(_overall_cells(len(heads), *figure) for figure in self.overall.items()),
            ),
        )

    def __repr__(self) -> str:
        errors = (f"{m} {significant(e * 100)} %" for m, e in self.overall.items())
        return (
            f"Backtest({len(self.rows)} figures, {len(self.skipped)} skipped: {', '.join(errors)})"
        )

    def _repr_html_(self) -> str:
        return html(self.to_table())


def summarise(scores: Iterable[Score]) -> Summary:
    """Summarise the errors of one group in one metric."""
    scores = list(scores)
    errors = [score.error_fraction for score in scores]
    absolute = sorted(map(abs, errors))
    inside = [score.inside_band for score in scores if score.inside_band is not None]
    return Summary(
        group=scores[0].group,
        metric=scores[0].metric,
        rows=len(scores),
        median_abs_error=median(absolute),
        p90_abs_error=_quantile(absolute, 0.9),
        median_error=median(errors),
        share_inside_band=sum(inside) / len(inside) if inside else None,
    )


def _quantile(ordered: list[float], share: float) -> float:
    """Return a quantile of ordered values, linear between them (Hyndman and Fan's type 7)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _cells(each: Summary) -> tuple[Cell, ...]:
    inside = each.share_inside_band
    return (
        *each.group.values(),
        each.metric.replace("_", " "),
        f"{each.rows:,}",
        each.median_error * 100,
        each.median_abs_error * 100,
        each.p90_abs_error * 100,
        None if inside is None else inside * 100,
    )


def _overall_cells(heads: int, metric: Metric, error: float) -> tuple[Cell, ...]:
    """Return the line of an overall figure, which stands under |error|."""
    names = ("overall", *("" for _ in range(heads - 1)), metric.replace("_", " "))
    return (*names, None, None, error * 100, None, None)
