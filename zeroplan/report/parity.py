"""A chart of what was predicted against what was measured."""

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from zeroplan.backtesting.record import Backtest, Metric, Score
from zeroplan.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["parity", "write_parity"]

STYLE: Final[dict[Any, object]] = {
    "font.size": 8.5,
    "text.color": "#222222",
    "axes.labelcolor": "#222222",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "zeroplan",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
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
    error = median(abs(score.error_fraction) for score in scores)
    ax.set_title(f"Half of {len(scores):,} {noun} are within {error:.1%}", loc="left")
    ax.text(0.97, 0.03, "grey: within 10 %; bars: the band", transform=ax.transAxes, ha="right")
    return ax


def write_parity(found: Backtest, path: Path) -> str:
    """Draw every metric of a backtest into one file; return the sentence that tells it in words."""
    from matplotlib import rc_context  # noqa: PLC0415  # only a chart needs matplotlib
    from matplotlib.figure import Figure  # noqa: PLC0415

    by_metric: dict[Metric, list[Score]] = {}
    for score in found.rows:
        by_metric.setdefault(score.metric, []).append(score)
    with rc_context(STYLE):
        figure = Figure(figsize=(3.6 * len(by_metric), 3.8), layout="constrained")
        for place, scores in enumerate(by_metric.values(), start=1):
            parity(tuple(scores), figure.add_subplot(1, len(by_metric), place))
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=300, metadata=metadata)
    told = (
        f"{len(scores):,} {TITLES[metric][0]}, half of them within "
        f"{median(abs(score.error_fraction) for score in scores):.1%}"
        for metric, scores in by_metric.items()
    )
    return f"Predicted against measured: {'; '.join(told)}."
