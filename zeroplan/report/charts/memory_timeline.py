"""`memory-timeline`: live bytes in the order of issue, by category, with the peak named."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zeroplan.estimation.answer import moment_name
from zeroplan.estimation.explain_case import Case
from zeroplan.records import dataclass
from zeroplan.report.charts.memory import PART_OF, grouped
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import GREY, PARTS, PLAIN, headline, key
from zeroplan.report.charts.words import about, byte_unit, joined, named, percent, size_words
from zeroplan.schedule.events import Event, Phase, Script

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "KIND",
    "MemoryTimelineChart",
    "Moment",
    "data_memory_timeline",
    "draw_memory_timeline",
    "lives",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is live at the highest moment of an event. [B]"""

    event: Event
    block: int | None
    """Number of the block that it belongs to."""
    bytes: dict[str, int]
    """By category, at that moment."""
    after: dict[str, int]
    """By category, when it is over."""

    @property
    def total_bytes(self) -> int:
        """All of it at that moment. [B]"""
        return sum(self.bytes.values())


def lives(script: Script) -> Iterator[Moment]:
    """Walk a step event by event, no copy skipped, as it is issued."""
    live = dict.fromkeys(PART_OF, 0)
    for change in script.resident:
        live[change.category] += int(change.bytes)
    for event, block in script.unrolled():
        total = high = sum(live.values())
        highest = dict(live)
        for change in event.changes:
            live[change.category] += int(change.bytes)
            total += int(change.bytes)
            if total > high:
                high, highest = total, dict(live)
        yield Moment(event=event, block=block, bytes=highest, after=dict(live))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimelineChart:
    """Live bytes of one strategy's step."""

    strategy: str
    context: str
    moment: str
    """Where the peak falls."""
    lives: tuple[Moment, ...]

    @property
    def peak(self) -> int:
        """Place of the highest moment, the first of equals."""
        return max(range(len(self.lives)), key=lambda place: self.lives[place].total_bytes)

    @property
    def peak_bytes(self) -> int:
        """What lives there. [B]"""
        return self.lives[self.peak].total_bytes

    @property
    def title(self) -> str:
        """How high the peak is, when, and what most of it is."""
        parts = grouped(self.lives[self.peak].bytes)
        most = max(parts, key=lambda part: parts[part])
        share = parts[most] / self.peak_bytes
        return (
            f"{self.strategy} peaks at {size_words(self.peak_bytes)} of tensors in {self.moment}; "
            f"{percent(share)} of it {most}"
        )

    @property
    def alt(self) -> str:
        """What the peak is made of, and what is left between steps."""
        parts = grouped(self.lives[self.peak].bytes)
        made = joined([f"{part} {size_words(size)}" for part, size in parts.items() if size])
        left = sum(self.lives[-1].after.values())
        return (
            f"Live tensors in the order of issue, {self.strategy}, {self.context}: "
            f"{size_words(self.peak_bytes)} in {self.moment}, of which {made}; "
            f"{size_words(left)} at the end of the step."
        )

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each event: what lives at its highest moment."""
        return [
            {
                "place": place,
                "phase": live.event.phase,
                "event": live.event.name,
                "owner": live.event.owner if live.block is None else f"block {live.block}",
                **{f"{category}_bytes": size for category, size in live.bytes.items()},
                "total_bytes": live.total_bytes,
                "after_bytes": sum(live.after.values()),
            }
            for place, live in enumerate(self.lives)
        ]


def data_memory_timeline(case: Case) -> MemoryTimelineChart:
    """Walk one strategy's step through its memory."""
    return MemoryTimelineChart(
        strategy=named(case.now.strategy),
        context=about(case.question.run),
        moment=moment_name(case.found.highest),
        lives=tuple(lives(case.step)),
    )


def draw_memory_timeline(data: MemoryTimelineChart, ax: "Axes") -> "Axes":
    """Stack what is live, event by event, and mark the peak."""
    from matplotlib.patches import Patch  # noqa: PLC0415  # only a chart needs matplotlib

    unit, word = byte_unit(data.peak_bytes)
    bins = _bins(data)
    xs = [at for run in bins for at in (run[0], (run[0] + run[-1] + 1) / 2)]
    both = [grouped(each) for run in bins for each in _ends(data, run)]
    xs, both = [*xs, len(data.lives)], [*both, both[-1]]  # a step reaches to where it ends
    shown = [part for part in PARTS if any(each.get(part) for each in both)]
    stacks = [[each[part] / unit for each in both] for part in shown]
    ax.stackplot(xs, stacks, colors=[PARTS[part] for part in shown], lw=0, step="post")
    top = data.peak_bytes / unit
    ax.set(xlim=(0, max(1, len(data.lives))), ylim=(0, top * 1.22), ylabel=f"live tensors [{word}]")
    ax.yaxis.set_major_formatter(PLAIN)
    ax.grid(axis="y")
    _phases(ax, data)
    _peak(ax, data, top)
    lift = key(ax, [Patch(color=PARTS[part], label=part) for part in shown])
    headline(ax, data.title, data.context, lift)
    return ax


def _bins(data: MemoryTimelineChart) -> list[range]:
    """Divide the events into as many runs as can be seen apart."""
    count = len(data.lives)
    each = max(1, -(-count // MOST_DRAWN))
    return [range(start, min(start + each, count)) for start in range(0, count, each)]


def _ends(data: MemoryTimelineChart, run: range) -> tuple[dict[str, int], dict[str, int]]:
    """Return the highest moment of a run of events, and what is left at its end. [B]"""
    highest = max(run, key=lambda place: data.lives[place].total_bytes)
    return data.lives[highest].bytes, data.lives[run[-1]].after


def _phases(ax: "Axes", data: MemoryTimelineChart) -> None:
    """Name the phases under the axis, one micro-step after the other."""
    runs: list[tuple[Phase, int, int]] = []
    for place, live in enumerate(data.lives):
        if runs and runs[-1][0] == live.event.phase:
            runs[-1] = (live.event.phase, runs[-1][1], place)
        else:
            runs.append((live.event.phase, place, place))
    ax.set_xticks([start for _, start, _ in runs[1:]], [""] * (len(runs) - 1))
    ax.set_xlabel("events in the order of issue")
    for phase, start, end in runs:
        if end + 1 - start > WIDE * len(data.lives):
            at = ((start + end + 1) / 2, 0)
            ax.annotate(phase, at, (0, -4), textcoords="offset points", ha="center", va="top")
            ax.xaxis.labelpad = 8


def _peak(ax: "Axes", data: MemoryTimelineChart, top: float) -> None:
    place, count = data.peak, len(data.lives)
    align = "left" if place < count / 3 else "right" if place > 2 * count / 3 else "center"
    ax.plot([place + 0.25], [top], marker="v", color="black", ms=5, zorder=4, clip_on=False)
    words = f"peak {size_words(data.peak_bytes)}: {data.moment}"
    ax.annotate(words, (place, top), (0, 6), textcoords="offset points", ha=align, va="bottom")
    ax.axhline(top, color=GREY, lw=0.6, ls=":")


MOST_DRAWN: Final = 400
"""Steps of the outline; more can neither be seen nor make a light file. [count]"""
WIDE: Final = 0.1
"""Share of the events from which a phase's name fits. [1]"""

KIND: Final = Kind(name="memory-timeline", draw=draw_memory_timeline)
