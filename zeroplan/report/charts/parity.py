"""`parity`: what was predicted against what was measured."""

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from zeroplan.backtesting.record import Backtest, Metric, Score
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "ParityChart", "data_parity", "draw_parity", "parity"]

POINTS: Final = "#0072b2"
"""Blue of Okabe and Ito, legible in grey and to the colour-blind."""
TITLES: Final[dict[Metric, tuple[str, str, float]]] = {
    "step_seconds": ("steps", "seconds of a step [s]", 1.0),
    "peak_bytes": ("peaks", "peak memory [GiB]", GIB),
    "seconds": ("calls", "seconds of a collective [s]", 1.0),
}
"""By metric: what is counted, the axes' label and its unit."""
TENTH: Final = 0.1


def parity(scores: tuple[Score, ...], ax: "Axes") -> "Axes":
    """Draw predictions of one metric with their bands over measurements, both logarithmic."""
    noun, label, unit = TITLES[scores[0].metric]
    measured = [score.measured / unit for score in scores]
    predicted = [score.predicted / unit for score in scores]
    low = [p - (s.low or s.predicted) / unit for p, s in zip(predicted, scores, strict=True)]
    high = [(s.high or s.predicted) / unit - p for p, s in zip(predicted, scores, strict=True)]
    ends = [min(measured + predicted) / 1.3, max(measured + predicted) * 1.3]
    ax.fill_between(
        ends,
        [e * (1 - TENTH) for e in ends],
        [e * (1 + TENTH) for e in ends],
        color="#e6e6e6",
        lw=0,
    )
    ax.plot(ends, ends, color="#888888", lw=0.8)
    ax.errorbar(measured, predicted, (low, high), fmt="none", ecolor="#bbbbbb", elinewidth=0.6)
    ax.scatter(measured, predicted, s=9, color=POINTS, edgecolors="white", linewidths=0.3, zorder=3)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ax.set(xlabel=f"measured {label}", ylabel=f"predicted {label}")
    ax.set_title(f"Half of {len(scores):,} {noun} are within {_middle(scores):.1%}", loc="left")
    ax.text(0.97, 0.03, "grey: within 10 %; bars: the band", transform=ax.transAxes, ha="right")
    return ax


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityChart:
    """Every metric of a backtest."""

    found: Backtest
    context: str = ""

    @property
    def metrics(self) -> dict[Metric, tuple[Score, ...]]:
        """The scores by metric, in the order of the table."""
        named = dict.fromkeys(score.metric for score in self.found.rows)
        return {
            metric: tuple(score for score in self.found.rows if score.metric == metric)
            for metric in named
        }

    @property
    def title(self) -> str:
        """How far off half of the predictions are."""
        return "; ".join(f"{noun}: half within {error:.1%}" for _, noun, error in self._told())

    @property
    def alt(self) -> str:
        """How many there are of each, and how far off half of them are."""
        told = (
            f"{count:,} {noun}, half of them within {error:.1%}"
            for count, noun, error in self._told()
        )
        return f"Predicted against measured: {'; '.join(told)}."

    def _told(self) -> Iterator[tuple[int, str, float]]:
        for metric, scores in self.metrics.items():
            yield len(scores), TITLES[metric][0], _middle(scores)

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each prediction, its error a share of the measurement."""
        return [
            {name: value for name, value in score.to_dict().items() if name != "filled_in"}
            for score in self.found.rows
        ]


def data_parity(found: Backtest) -> ParityChart:
    """Take every prediction of a backtest."""
    return ParityChart(found=found)


def draw_parity(data: ParityChart, axes: "tuple[Axes, ...]") -> "tuple[Axes, ...]":
    """Draw one metric on each of the axes."""
    for scores, ax in zip(data.metrics.values(), axes, strict=True):
        parity(scores, ax)
    return axes


def _middle(scores: tuple[Score, ...]) -> float:
    """Return the error that half of the predictions stay within. [1]"""
    return median(abs(score.error_fraction) for score in scores)


KIND: Final = Kind(
    name="parity",
    draw=draw_parity,
    panels=lambda data: len(data.metrics),
    across=True,
    width=lambda data: 3.6 * len(data.metrics),
)
