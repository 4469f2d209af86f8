"""How every chart looks: what each colour means, where headline and labels stand."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GREY",
    "PARTS",
    "PLAIN",
    "STYLE",
    "TEXT",
    "WAITING",
    "Look",
    "end_labels",
    "headline",
    "ink_on",
    "key",
    "log_ticks",
    "look_of",
    "plain_ticks",
    "spread",
    "ticks",
]

TEXT: Final = "#222222"
GREY: Final = "#666666"
"""Contrast with white of 5.7: still legible as text."""

STYLE: Final[dict[Any, object]] = {
    "font.size": 8.5,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "svg.hashsalt": "zeroplan",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}

PARTS: Final = {
    "parameters": "#0072b2",
    "gradients": "#56b4e9",
    "optimizer": "#d55e00",
    "activations": "#009e73",
    "buffers": "#cc79a7",
    "allocator, NCCL, CUDA": "#d0d0d0",
}
"""What memory is made of: colours of Okabe and Ito, apart for the colour-blind too, and greys."""

WAITING: Final = "#e69f00"
"""Orange of Okabe and Ito: the GPU waits for communication, in every chart."""

Look = Mapping[str, Any]

_LOOKS: Final[dict[str, Look]] = {
    "ddp": {"color": "#222222", "marker": "o"},
    "zero1": {"color": "#d55e00", "marker": "s"},
    "zero2": {"color": "#cc79a7", "marker": "D"},
    "zero3": {"color": "#0072b2", "marker": "^"},
    "fsdp2": {"color": "#009e73", "marker": "v"},
    "hsdp": {"color": "#b07700", "marker": "P"},
    "fsdp1": {"color": "#56b4e9", "marker": "X", "ls": "--"},
    "fsdp1-grad-op": {"color": "#009e73", "marker": "<", "ls": "--"},
    "torch-zero1": {"color": "#d55e00", "marker": "*", "ls": "--"},
    "zero0": {"color": "#222222", "marker": "h", "ls": "--"},
}
_OTHER: Final[Look] = {"color": GREY, "marker": ".", "ls": ":"}

POINTS_PER_INCH: Final = 72
LINE: Final = 11.5
"""Height of a line of text. [pt]"""
DARK: Final = 0.179
"""Relative luminance below which white is the more legible; either has a contrast of 4.5. [1]"""
NARROW: Final = 1.5
"""Largest over smallest value below which a logarithmic axis would have no ticks. [1]"""
MOST_TICKS: Final = 7
"""Ticks that stand apart. [count]"""
FACTORS: Final = (
    ((1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, *(half / 2 for half in range(4, 20))), 1),
    ((1, 1.5, 2, 3, 4, 5, 6, 8), 1),
    ((1, 2, 5), 1),
    ((1, 3), 1),
    *(((1,), stride) for stride in range(1, 8)),
)
"""What every power of ten, or every so manieth, is multiplied by for ticks, from many to few."""
LEAST: Final = 1e-4
LARGEST: Final = 1e8
"""Ticks between these are written out."""
PLAIN: Final = "{x:,.12g}"
"""Format of ticks."""
BOLD_INCHES: Final = 0.088
"""Room for a character of the headline. [in]"""


def look_of(strategy: str) -> Look:
    """Return colour, marker and dashes of a strategy, the same in every chart."""
    return _LOOKS.get(strategy, _OTHER)


def headline(ax: "Axes", title: str, context: str, lift: float = 0) -> None:
    """Write the finding over a chart, and under it what was asked.

    Parameters
    ----------
    ax
        The topmost axes of the chart.
    title, context
        The finding, and what it is about.
    lift
        Room to leave for what stands between them and the axes. [pt]

    """
    left, across = _left(ax)
    place = (across, "axes fraction")
    columns = 2 if across is ax.transAxes else 1
    letters = int(ax.figure.bbox.width / ax.figure.dpi / columns / BOLD_INCHES) - 2
    below = "\n".join(_lines(line, int(letters * 1.25)) for line in context.splitlines())
    height = lift + 6 + LINE * (1 + below.count("\n")) + 3
    options: Any = {"xycoords": place, "textcoords": "offset points", "va": "bottom", "ha": "left"}
    ax.annotate(below, (left, 1), (0, lift + 6), color=GREY, fontsize=8, **options)
    ax.annotate(
        _lines(title, letters), (left, 1), (0, height), fontsize=10, fontweight="bold", **options
    )


def _lines(text: str, letters: int) -> str:
    """Break a text between its words; a name such as ib-ndr400 stays whole."""
    return fill(text, letters, break_on_hyphens=False)


def _left(ax: "Axes") -> tuple[float, Any]:
    """Return where a chart begins: at the page's edge where nothing stands beside it."""
    spec = ax.get_subplotspec()
    if spec is None or spec.get_gridspec().ncols == 1:
        return 0.012, ax.figure.transFigure
    return 0.0, ax.transAxes


def key(ax: "Axes", handles: Sequence[Any], columns: int = 4) -> float:
    """Name the colours of stacked parts between headline and axes; return the room it takes [pt]."""
    from matplotlib.transforms import blended_transform_factory  # noqa: PLC0415

    columns = min(columns, len(handles))
    left, across = _left(ax)
    ax.legend(
        handles=[each for start in range(columns) for each in handles[start::columns]],
        loc="lower left",
        bbox_to_anchor=(left, 1),
        bbox_transform=blended_transform_factory(across, ax.transAxes),
        ncols=columns,  # which matplotlib fills one after the other
        frameon=False,
        fontsize=8,
        handlelength=1.1,
        handleheight=1.0,
        columnspacing=1.2,
        borderpad=0.2,
        borderaxespad=0.2,
    )
    rows = -(-len(handles) // columns)
    return 14 * rows + 4


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart until none is nearer than the gap, as little as can be.

    Where they do not all fit between the ends they stand closer.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    placed = [min(max(wanted[place], low), high) for place in order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    placed[-1] = min(placed[-1], high)
    for i in range(len(placed) - 2, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - gap)
    found = [0.0] * len(wanted)
    for place, at in zip(order, placed, strict=True):
        found[place] = at
    return found


def end_labels(ax: "Axes", ends: Iterable[tuple[float, float, str, str]]) -> None:
    """Name lines at their right ends: x, y, text and colour of each; limits must be set before."""
    ends = list(ends)
    axes = ax.transScale + ax.transLimits
    heights = [float(axes.transform((x, y))[1]) for x, y, _, _ in ends]
    inches = ax.get_window_extent().height / ax.figure.dpi
    gap = LINE / POINTS_PER_INCH / inches * 1.15
    for (x, y, text, colour), height in zip(ends, spread(heights, gap, 0.0, 1.0), strict=True):
        ax.annotate(
            text,
            (x, y),
            (1.035, height),
            textcoords="axes fraction",
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "lw": 0.6,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 2,
            },
            annotation_clip=False,
        )


def plain_ticks(ax: "Axes", values: Sequence[float], words: Sequence[str]) -> None:
    """Put a tick under each value of a logarithmic x axis, and none between."""
    ax.set_xticks(list(values), list(words))
    ax.set_xticks([], minor=True)


def ticks(
    low: float, high: float, most: int = MOST_TICKS, largest: float = LARGEST
) -> tuple[list[float], list[str]]:
    """Return places and words of ticks between two ends of a logarithmic axis.

    They are at most so many, and written out up to the largest.
    """
    found: list[float] = []
    for factors, stride in FACTORS:
        every = (each * 10.0**power for power in range(-12, 19, stride) for each in factors)
        found = [tick for tick in every if low <= tick <= high]
        if len(found) <= most:
            break
    written_out = all(LEAST <= tick < largest for tick in found)
    return found, [f"{tick:,.12g}" if written_out else f"{tick:.3g}" for tick in found]


def log_ticks(ax: "Axes", values: Iterable[float]) -> None:
    """Scale the y axis to values, with plain ticks.

    Values that are nearly alike stand on an axis from 0 instead, where that can be seen.
    """
    values = list(values)
    low, high = min(values) / 1.2, max(values) * 1.3
    if max(values) < NARROW * min(values):
        ax.set_ylim(0, high)
        ax.yaxis.set_major_formatter(PLAIN)
        return
    ax.set(yscale="log", ylim=(low, high))
    ax.set_yticks(*ticks(low, high))
    ax.set_yticks([], minor=True)


def ink_on(colour: str) -> str:
    """Return white or black, whichever is the more legible on a colour."""
    red, green, blue = ((int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # ITU-R BT.709
    return "#ffffff" if luminance < DARK else "#000000"
