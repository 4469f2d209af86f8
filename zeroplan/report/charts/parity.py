"""`parity`: what was predicted against what was measured."""

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from zeroplan.backtesting.record import Backtest, Metric, Score
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import ticks
from zeroplan.report.charts.words import percent
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
MOST_TICKS: Final = 5
"""On an axis. [count]"""
WIDE: Final = 1e5
"""From where ticks beside each other find no room to be written out."""
FEW: Final = 60
"""Points that may be larger. [count]"""


def parity(scores: tuple[Score, ...], ax: "Axes") -> "Axes":
    """Draw predictions of one metric with their bands over measurements, both logarithmic."""
    _, label, unit = TITLES[scores[0].metric]
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
    size = 22 if len(scores) < FEW else 9
    look: Any = {"color": POINTS, "edgecolors": "white", "linewidths": 0.3, "zorder": 3}
    ax.scatter(measured, predicted, s=size, **look)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(*ticks(ends[0], ends[1], MOST_TICKS, WIDE))
        axis.set_ticks([], minor=True)
    ax.set(xlabel=f"measured {label}", ylabel=f"predicted {label}")
    ax.set_title(_begun(_half(scores)), loc="left")
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
        return _begun("; ".join(map(_half, self.metrics.values())))

    @property
    def alt(self) -> str:
        """How many there are of each, and how far off half of them are."""
        return f"Predicted against measured: {'; '.join(map(_half, self.metrics.values()))}."

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


def _half(scores: tuple[Score, ...]) -> str:
    """Say what half of the predictions of a metric stay within."""
    noun, count = TITLES[scores[0].metric][0], len(scores)
    within = percent(median(abs(score.error_fraction) for score in scores))
    if count == 1:
        return f"the one {noun.removesuffix('s')} is within {within}"
    return f"half of {count:,} {noun} are within {within}"


def _begun(words: str) -> str:
    """Return words as a sentence begins."""
    return words[:1].upper() + words[1:]


KIND: Final = Kind(
    name="parity",
    draw=draw_parity,
    panels=lambda data: len(data.metrics),
    across=True,
    width=lambda data: 3.6 * len(data.metrics),
)
