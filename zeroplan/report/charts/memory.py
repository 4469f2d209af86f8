"""`memory`: what each strategy's peak is made of, against what a GPU has."""

from typing import TYPE_CHECKING, Final

from zeroplan.estimation.record import Memory, Verdict
from zeroplan.records import dataclass, fields
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import GREY, PARTS, PLAIN, headline, ink_on, key
from zeroplan.report.charts.words import Answer, about, byte_unit, labelled, size_words
from zeroplan.rows import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "PART_OF", "Bar", "MemoryChart", "data_memory", "draw_memory", "grouped"]

PART_OF: Final = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "loss": "activations",
    "unsharded_parameters": "buffers",
    "unsharded_gradients": "buffers",
    "all_gather_buffers": "buffers",
    "reduce_scatter_buffers": "buffers",
    "temporaries": "buffers",
    "workspaces": "buffers",
    "other": "buffers",
}
"""The part of the chart to which each category of the peak belongs."""

BEYOND: Final = "allocator, NCCL, CUDA"
"""What a GPU holds beyond live tensors."""

WORDS: Final[dict[Verdict, str]] = {"fits": "", "tight": ", tight", "does_not_fit": ", too big"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One strategy's memory. [B]"""

    name: str
    parts: dict[str, int]
    """By part of the chart; together they are what the device shows."""
    device_bytes: int
    usable_bytes: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChart:
    """Memory side by side."""

    context: str
    bars: tuple[Bar, ...]

    @property
    def limit_bytes(self) -> int | None:
        """What a GPU has; None where the bars' GPUs differ."""
        limits = {bar.usable_bytes for bar in self.bars}
        return limits.pop() if len(limits) == 1 else None

    @property
    def title(self) -> str:
        """Which fit, and which needs least."""
        fitting = [bar for bar in self.bars if bar.verdict != "does_not_fit"]
        least = min(self.bars, key=lambda bar: bar.device_bytes)
        limit = "" if self.limit_bytes is None else f" in {size_words(self.limit_bytes)}"
        need = f"{least.name} needs {size_words(least.device_bytes)}"
        if len(self.bars) == 1:
            verb = {"fits": "fits", "tight": "is tight", "does_not_fit": "does not fit"}
            return f"{least.name} {verb[least.verdict]}{limit}: it needs {size_words(least.device_bytes)}"
        if not fitting:
            return f"Nothing fits{limit}: the smallest, {need}"
        if len(fitting) == len(self.bars):
            most = max(self.bars, key=lambda bar: bar.device_bytes)
            return f"All fit{limit}: {need}, {most.name} {size_words(most.device_bytes)}"
        return f"{len(fitting)} of {len(self.bars)} fit{limit}; {need}, the least"

    @property
    def alt(self) -> str:
        """Every bar in words."""
        each = (f"{b.name} {size_words(b.device_bytes)}{WORDS[b.verdict]}" for b in self.bars)
        return f"Stacked bars of memory per GPU, {self.context}. {'; '.join(each)}."

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each bar."""
        return [
            {
                "name": bar.name,
                "verdict": bar.verdict,
                **{f"{_column(part)}_bytes": size for part, size in bar.parts.items()},
                "device_bytes": bar.device_bytes,
                "usable_bytes": bar.usable_bytes,
            }
            for bar in self.bars
        ]


def _column(part: str) -> str:
    return part.lower().replace(", ", "_")


def grouped(sizes: dict[str, int]) -> dict[str, int]:
    """Add categories up to the parts of a chart. [B]"""
    parts = dict.fromkeys(PART_OF.values(), 0)
    for category, size in sizes.items():
        parts[PART_OF[category]] += size
    return parts


def data_memory(told: Answer) -> MemoryChart:
    """Take what the chart shows from an estimate, or from several side by side."""
    bars = [(name, run, each) for name, run, each in labelled(told)]
    several = len({run.cluster for _, run, _ in bars}) > 1
    return MemoryChart(
        context=about(bars[0][1], gpus=not several),
        bars=tuple(_bar(name, each.memory, each.verdict) for name, _, each in bars),
    )


def _bar(name: str, memory: Memory, verdict: Verdict) -> Bar:
    found = memory.peak_breakdown_bytes
    parts = grouped({entry.name: getattr(found, entry.name) for entry in fields(found)})
    device = memory.device_bytes or memory.peak_allocated_bytes
    parts[BEYOND] = device - sum(parts.values())
    return Bar(
        name=name,
        parts=parts,
        device_bytes=device,
        usable_bytes=memory.usable_bytes or 0,
        verdict=verdict,
    )


def draw_memory(data: MemoryChart, ax: "Axes") -> "Axes":
    """Draw a bar for each strategy and the limit across them."""
    from matplotlib.patches import Patch  # noqa: PLC0415  # only a chart needs matplotlib

    most = max(max(bar.device_bytes, bar.usable_bytes) for bar in data.bars)
    unit, word = byte_unit(most)
    longest = most / unit
    ax.set(xlim=(0, longest * 1.17), ylim=(len(data.bars) - 0.4, -1.0))
    for place, bar in enumerate(data.bars):
        _stack(ax, place, bar, longest, unit)
    ax.set_yticks(range(len(data.bars)), [bar.name for bar in data.bars])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"memory of a GPU [{word}]")
    ax.xaxis.set_major_formatter(PLAIN)
    ax.grid(axis="x")
    _limit(ax, data, unit)
    shown = [part for part in PARTS if any(bar.parts.get(part) for bar in data.bars)]
    lift = key(ax, [Patch(color=PARTS[part], label=part) for part in shown])
    headline(ax, data.title, data.context, lift)
    return ax


def _stack(ax: "Axes", place: int, bar: Bar, longest: float, unit: float) -> None:
    left = 0.0
    for part, colour in PARTS.items():
        size = bar.parts.get(part, 0) / unit
        ax.barh(place, size, 0.66, left, color=colour, edgecolor="white", linewidth=0.5)
        words = significant(size)
        if size > (0.02 + 0.014 * len(words)) * longest:
            middle = left + size / 2
            ink = ink_on(colour)
            ax.text(
                middle,
                place,
                words,
                ha="center",
                va="center",
                color=ink,
                fontsize=7.5,
                zorder=4,
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.6},
            )
        left += size
    total = f"{significant(left)}{WORDS[bar.verdict]}"
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.9}
    ax.text(left + 0.01 * longest, place, total, va="center", zorder=4, bbox=behind)


def _limit(ax: "Axes", data: MemoryChart, unit: float) -> None:
    for place, bar in enumerate(data.bars):
        at = bar.usable_bytes / unit
        ax.plot([at, at], [place - 0.45, place + 0.45], color="black", lw=1.2, zorder=3)
    if data.limit_bytes is not None:
        at = data.limit_bytes / unit
        ax.plot([at, at], [-0.5, len(data.bars) - 0.5], color="black", lw=1.2)
        words = f"usable: {size_words(data.limit_bytes)}"
        side = "left" if 3 * at < ax.get_xlim()[1] else "right"
        ax.text(at, -0.55, words, ha=side, va="bottom", color=GREY)


KIND: Final = Kind(
    name="memory",
    draw=draw_memory,
    height=lambda data: 1.75 + 0.3 * max(3, len(data.bars)),
)
