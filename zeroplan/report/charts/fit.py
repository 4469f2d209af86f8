"""`fit`: which micro-batch sizes and sequence lengths fit, and how fast each is."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zeroplan.estimation.choice import choose
from zeroplan.estimation.resolve import resolve
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.priced import Point, points
from zeroplan.report.charts.style import headline, ink_on
from zeroplan.report.charts.words import about, named, size_words
from zeroplan.rows import significant
from zeroplan.spec.reading import read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "FitChart", "data_fit", "draw_fit"]

SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
"""Micro-batch sizes where one alone is given. [sequences]"""
LENGTHS: Final = tuple(1024 << doubling for doubling in range(8))
"""Sequence lengths where one alone is given, as far as the model goes. [tokens]"""
MOST: Final = 12
"""Columns in which a number can be read. [count]"""

SIZE: Final = "training.micro_batch_size"
LENGTH: Final = "training.sequence_length"
STRATEGY: Final = "sharding.strategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitChart:
    """One strategy over batches."""

    strategy: str
    context: str
    points: tuple[Point, ...]

    @property
    def usable_bytes(self) -> int:
        """What a GPU has. [B]"""
        return self.points[0].usable_bytes

    @property
    def fitting(self) -> list[Point]:
        """The batches that fit, the tight ones too."""
        return [point for point in self.points if point.verdict != "does_not_fit"]

    @property
    def best(self) -> Point | None:
        """The fastest batch that fits; None where none does."""
        return max(self.fitting, key=lambda point: point.tokens_per_second_per_gpu, default=None)

    @property
    def title(self) -> str:
        """The largest batch that fits, and the fastest."""
        if self.best is None:
            least = min(point.device_bytes for point in self.points)
            return f"{self.strategy}: nothing fits; the smallest batch needs {size_words(least)}"
        largest = max(self.fitting, key=_tokens)
        rate = significant(self.best.tokens_per_second_per_gpu)
        return (
            f"{self.strategy} fits up to {_tokens(largest):,} tokens per GPU; "
            f"fastest is {self.best.micro_batch_size} x {self.best.sequence_length:,}, "
            f"{rate} tokens/s"
        )

    @property
    def alt(self) -> str:
        """The longest sequence that fits for every micro-batch size."""
        told = []
        for size in sorted({point.micro_batch_size for point in self.points}):
            lengths = [p.sequence_length for p in self.fitting if p.micro_batch_size == size]
            told.append(f"{size}: {max(lengths):,} tokens" if lengths else f"{size}: none")
        return (
            f"Micro-batch size against sequence length, {self.strategy}, {self.context}. "
            f"Longest sequence that fits in {size_words(self.usable_bytes)} by micro-batch size: "
            f"{', '.join(told)}."
        )

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each batch."""
        return [
            {
                "strategy": point.strategy,
                "micro_batch_size": point.micro_batch_size,
                "sequence_length": point.sequence_length,
                "verdict": point.verdict,
                "device_bytes": point.device_bytes,
                "usable_bytes": point.usable_bytes,
                "step_seconds": point.step_seconds,
                "tokens_per_second_per_gpu": point.tokens_per_second_per_gpu,
            }
            for point in self.points
        ]


def _tokens(point: Point) -> int:
    return point.micro_batch_size * point.sequence_length


def data_fit(values: Mapping[str, object], profiles: Path | None = None) -> FitChart:
    """Price one strategy over batches: the one that values name, or the fastest that fits.

    `training.micro_batch_size` and `training.sequence_length` may be lists; one value alone says
    nothing, and `SIZES` and `LENGTHS` are taken.
    """
    lists = {key: each for key, each in values.items() if isinstance(each, list)}
    single = {key: each for key, each in values.items() if key not in lists}
    first = {key: each[0] for key, each in lists.items()}
    chosen = choose(resolve(read_run(single, first), profiles))
    longest = chosen.question.architecture.max_positions or LENGTHS[-1]
    found = points(
        {
            **single,
            STRATEGY: chosen.estimate.strategy,
            SIZE: lists.get(SIZE, SIZES),
            LENGTH: lists.get(LENGTH, [each for each in LENGTHS if each <= longest] or [longest]),
        },
        profiles,
    )
    return FitChart(
        strategy=named(chosen.estimate.strategy),
        context=about(found[0].run, batch=False),
        points=tuple(found),
    )


def draw_fit(data: FitChart, ax: "Axes") -> "Axes":
    """Draw a field for each batch: its tokens per second, or what it would need."""
    from matplotlib import colormaps  # noqa: PLC0415  # only a chart needs matplotlib
    from matplotlib.colors import to_hex  # noqa: PLC0415
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    lengths = sorted({point.sequence_length for point in data.points})
    sizes = sorted({point.micro_batch_size for point in data.points})
    top = data.best.tokens_per_second_per_gpu if data.best else 1.0
    for point in data.points:
        x, y = lengths.index(point.sequence_length), sizes.index(point.micro_batch_size)
        fits = point.verdict != "does_not_fit"
        share = point.tokens_per_second_per_gpu / top
        red, green, blue, _ = colormaps["cividis"](0.15 + 0.85 * share)
        colour = (red, green, blue) if fits else "#f4f4f4"
        ax.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, lw=1.5, facecolor=colour, edgecolor="white")
        )
        ink = ink_on(to_hex(colour))
        ax.text(x, y, _field(point), ha="center", va="center", fontsize=7, color=ink)
    if data.best is not None:
        at = lengths.index(data.best.sequence_length), sizes.index(data.best.micro_batch_size)
        ax.add_patch(
            Rectangle((at[0] - 0.47, at[1] - 0.47), 0.94, 0.94, fill=False, lw=1.8, zorder=3)
        )
    ax.set(xlim=(-0.5, len(lengths) - 0.5), ylim=(-0.5, len(sizes) - 0.5))
    ax.set_xticks(range(len(lengths)), [f"{each:,}" for each in lengths])
    ax.set_yticks(range(len(sizes)), [f"{each:,}" for each in sizes])
    ax.tick_params(length=0)
    ax.set(xlabel="sequence length [tokens]", ylabel="micro-batch [sequences]")
    note = f"coloured: tokens/s of a GPU · grey: does not fit in {size_words(data.usable_bytes)}"
    headline(ax, data.title, f"{data.context}\n{note}")
    return ax


def _field(point: Point) -> str:
    if point.verdict == "does_not_fit":
        return size_words(point.device_bytes).replace(" ", "\n")
    tight = "\ntight" if point.verdict == "tight" else ""
    rate = point.tokens_per_second_per_gpu
    return f"{significant(rate) if rate < WRITTEN_OUT else f'{rate:.2e}'}{tight}"


WRITTEN_OUT: Final = 1e6
"""Tokens per second below which a field holds all their digits. [1/s]"""

KIND: Final = Kind(
    name="fit",
    draw=draw_fit,
    height=lambda data: 1.3 + 0.36 * max(5, len({p.micro_batch_size for p in data.points})),
)
