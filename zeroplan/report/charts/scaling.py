"""`scaling`: memory and step time against the number of GPUs, and the floor of the memory."""

from collections.abc import Mapping
from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.priced import Point, points
from zeroplan.report.charts.style import GREY, end_labels, headline, log_ticks, look_of, plain_ticks
from zeroplan.report.charts.words import about, byte_unit, duration, size_words
from zeroplan.rows import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GPUS", "KIND", "Line", "ScalingChart", "data_scaling", "draw_scaling"]

GPUS: Final = tuple(8 << doubling for doubling in range(10))
"""8 to 4,096. [count]"""

ALIKE: Final = 0.02
"""Share by which a step may change and still count as long as before. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One strategy over the numbers of GPUs."""

    strategy: str
    gpus: tuple[int, ...]
    device_bytes: tuple[int, ...]
    step_seconds: tuple[float, ...]

    @property
    def floor_bytes(self) -> int:
        """What no number of GPUs removes. [B]

        What is shared falls as one over the GPUs: the last fall before the least tells how much is
        still to come.
        """
        least = self.device_bytes.index(min(self.device_bytes))
        if not least:
            return self.device_bytes[0]
        (few, many), (more, less) = (
            self.gpus[least - 1 : least + 1],
            self.device_bytes[least - 1 : least + 1],
        )
        return less - (more - less) * few // (many - few)

    @property
    def growth(self) -> float:
        """By what the step takes longer on most GPUs than on fewest. [1]"""
        return self.step_seconds[-1] / self.step_seconds[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChart:
    """All strategies over the numbers of GPUs, with the batch of a GPU as it is."""

    context: str
    usable_bytes: int
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """The lowest floor, and what that strategy's step does."""
        best = min(self.lines, key=lambda line: line.floor_bytes)
        where = f"from {best.gpus[0]:,} to {best.gpus[-1]:,} GPUs"
        takes = "stays as long"
        if abs(best.growth - 1) > ALIKE:
            takes = f"takes {significant(best.growth)} times as long"
        step = f"{where} its step {takes}"
        return (
            f"No number of GPUs brings {best.strategy} below {size_words(best.floor_bytes)}; {step}"
        )

    @property
    def alt(self) -> str:
        """Both ends of every line."""
        each = [
            f"{line.strategy} from {size_words(line.device_bytes[0])} and {duration(line.step_seconds[0])}"
            f" to {size_words(line.device_bytes[-1])} and {duration(line.step_seconds[-1])},"
            f" floor {size_words(line.floor_bytes)}"
            for line in self.lines
        ]
        ends = f"{self.lines[0].gpus[0]:,} to {self.lines[0].gpus[-1]:,}"
        return f"Memory and step time on {ends} GPUs, {self.context}: {'; '.join(each)}."

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each strategy and number of GPUs."""
        return [
            {
                "strategy": line.strategy,
                "gpus": gpus,
                "device_bytes": size,
                "floor_bytes": line.floor_bytes,
                "usable_bytes": self.usable_bytes,
                "step_seconds": seconds,
            }
            for line in self.lines
            for gpus, size, seconds in zip(
                line.gpus, line.device_bytes, line.step_seconds, strict=True
            )
        ]


def data_scaling(values: Mapping[str, object], profiles: Path | None = None) -> ScalingChart:
    """Price all strategies that values by dotted key leave open, over numbers of GPUs.

    `cluster.gpus` may be a list; one number alone says nothing, and `GPUS` are taken.
    """
    asked = values.get("cluster.gpus")
    found = points({**values, "cluster.gpus": asked if isinstance(asked, list) else GPUS}, profiles)
    by_strategy: dict[str, list[Point]] = {}
    for point in found:
        by_strategy.setdefault(point.strategy, []).append(point)
    return ScalingChart(
        context=about(found[0].run, gpus=False),
        usable_bytes=found[0].usable_bytes,
        lines=tuple(_line(strategy, each) for strategy, each in by_strategy.items()),
    )


def _line(strategy: str, found: list[Point]) -> Line:
    found = sorted(found, key=lambda point: point.run.cluster.gpus)
    return Line(
        strategy=strategy,
        gpus=tuple(point.run.cluster.gpus for point in found),
        device_bytes=tuple(point.device_bytes for point in found),
        step_seconds=tuple(point.step_seconds for point in found),
    )


def draw_scaling(data: ScalingChart, axes: "tuple[Axes, Axes]") -> "tuple[Axes, Axes]":
    """Draw memory above and step time below."""
    memory, time = axes
    unit, word = byte_unit(data.usable_bytes)
    for line in data.lines:
        look = look_of(line.strategy)
        memory.plot(line.gpus, [size / unit for size in line.device_bytes], **look)
        memory.axhline(line.floor_bytes / unit, color=look["color"], lw=0.6, ls=":")
        time.plot(line.gpus, line.step_seconds, **look)
    gpus = sorted({count for line in data.lines for count in line.gpus})
    for ax in axes:
        ax.set(xscale="log", xlim=(gpus[0] / 1.1, gpus[-1] * 1.1))
        plain_ticks(ax, gpus, [f"{count:,}" for count in gpus])
        ax.grid(axis="y")
    sizes = [size / unit for line in data.lines for size in (*line.device_bytes, line.floor_bytes)]
    log_ticks(memory, [*sizes, data.usable_bytes / unit])
    log_ticks(time, [seconds for line in data.lines for seconds in line.step_seconds])
    memory.set_ylabel(f"memory of a GPU [{word}]")
    time.set(ylabel="seconds of a step [s]", xlabel="GPUs, the batch of each as it is")
    limit = data.usable_bytes / unit
    memory.axhline(limit, color="black", lw=1.2)
    at, side = _freer(data, gpus)
    name = f"usable: {size_words(data.usable_bytes)}"
    memory.text(at, limit * 1.04, name, va="bottom", ha=side, color=GREY)
    _name(axes, data, unit)
    headline(memory, data.title, data.context)
    return axes


def _freer(data: ScalingChart, gpus: list[int]) -> tuple[int, str]:
    """Return the end at which the name of the limit is farther from every line."""

    def nearest(few: list[int]) -> float:
        pairs = (
            pair for each in data.lines for pair in zip(each.gpus, each.device_bytes, strict=True)
        )
        return min((abs(log(s / data.usable_bytes)) for n, s in pairs if n in few), default=inf)

    third = -(-len(gpus) // 3)
    if nearest(gpus[:third]) < nearest(gpus[-third:]):
        return gpus[-1], "right"
    return gpus[0], "left"


def _name(axes: "tuple[Axes, Axes]", data: ScalingChart, unit: float) -> None:
    sizes, times = [], []
    for line in data.lines:
        at, colour = line.gpus[-1], look_of(line.strategy)["color"]
        size, seconds = line.device_bytes[-1], line.step_seconds[-1]
        floor = f"{line.strategy}, floor {size_words(line.floor_bytes)}"
        sizes.append((at, size / unit, floor, colour))
        times.append((at, seconds, f"{line.strategy}, {duration(seconds)}", colour))
    end_labels(axes[0], sizes)
    end_labels(axes[1], times)


KIND: Final = Kind(name="scaling", draw=draw_scaling, panels=lambda _: 2, height=lambda _: 5.6)
