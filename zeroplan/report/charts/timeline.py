"""`timeline`: what each stream does over one step, and where the GPU waits."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, get_args

from zeroplan.estimation.explain_case import Case
from zeroplan.records import dataclass, replace
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import PARTS, PLAIN, WAITING, headline, key
from zeroplan.report.charts.words import about, duration, named, percent, time_unit
from zeroplan.schedule.events import Phase, Stream
from zeroplan.timing.walk import Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "TimelineChart", "Work", "data_timeline", "draw_timeline", "gaps"]

Doing = Literal["forward", "backward", "optimizer", "collective", "copy", "gap"]

NARROWEST: Final = 1 / 3000
"""Share of the step below which pieces are drawn as one: less than a dot of the picture. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a stream does from one moment to another. [s]"""

    stream: Stream
    what: str
    """The event's name and owner."""
    doing: Doing
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineChart:
    """The streams of one strategy's step."""

    strategy: str
    context: str
    step_seconds: float
    works: tuple[Work, ...]
    """In issue order; where the compute stream has nothing to do, that too."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams that do something, the compute stream first."""
        used = {work.stream for work in self.works}
        return tuple(stream for stream in get_args(Stream) if stream in used)

    @property
    def computing_seconds(self) -> float:
        """How long the compute stream computes: it neither waits nor sends. [s]"""
        mine = (w for w in self.works if w.stream == "compute" and w.doing in get_args(Phase))
        return sum(work.end_seconds - work.start_seconds for work in mine)

    @property
    def longest_gap(self) -> Work | None:
        """The longest time in which the compute stream has nothing to do."""
        gaps = (work for work in self.works if work.doing == "gap")
        return max(gaps, key=lambda gap: gap.end_seconds - gap.start_seconds, default=None)

    @property
    def title(self) -> str:
        """How much of the step is computing."""
        share = percent(self.computing_seconds / self.step_seconds)
        return f"{self.strategy} computes for {share} of its step of {duration(self.step_seconds)}"

    @property
    def alt(self) -> str:
        """How busy each stream is, and the longest gap."""
        busy = [f"{stream} busy {duration(self._busy(stream))}" for stream in self.streams]
        gap = self.longest_gap
        longest = (
            ""
            if gap is None
            else (
                f" The longest gap, {duration(gap.end_seconds - gap.start_seconds)}, "
                f"begins at {duration(gap.start_seconds)}, before {gap.what}."
            )
        )
        return (
            f"Streams over one step, {self.strategy}, {self.context}: {', '.join(busy)}.{longest}"
        )

    def _busy(self, stream: Stream) -> float:
        mine = (w for w in self.works if w.stream == stream and w.doing != "gap")
        return sum(work.end_seconds - work.start_seconds for work in mine)

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each event and gap, in issue order."""
        return [
            {
                "stream": work.stream,
                "what": work.what,
                "doing": work.doing,
                "start_seconds": work.start_seconds,
                "end_seconds": work.end_seconds,
            }
            for work in self.works
        ]


def data_timeline(case: Case) -> TimelineChart:
    """Run one strategy's step on the clock."""
    works = tuple(gaps(map(_work, case.spans())))
    return TimelineChart(
        strategy=named(case.now.strategy),
        context=about(case.question.run),
        step_seconds=max((work.end_seconds for work in works), default=0.0),
        works=works,
    )


def _work(span: Span) -> Work:
    event = span.event
    owner = event.owner if span.block is None else f"block {span.block}"
    doing: Doing = event.phase
    if event.collective is not None:
        doing = "collective"
    elif span.stream != "compute":
        doing = "copy"
    return Work(
        stream=span.stream,
        what=f"{event.phase}, {owner}, {event.name}",
        doing=doing,
        start_seconds=span.start_seconds,
        end_seconds=span.end_seconds,
    )


def gaps(works: Iterator[Work]) -> Iterator[Work]:
    """Yield works and, before each of the compute stream that starts late, the gap."""
    free = 0.0
    for work in works:
        if work.stream == "compute":
            if work.start_seconds > free and work.end_seconds > work.start_seconds:
                yield replace(work, doing="gap", start_seconds=free, end_seconds=work.start_seconds)
            if work.end_seconds > work.start_seconds:
                free = work.end_seconds
        yield work


COLOURS: Final[dict[Doing, str]] = {
    "forward": "#8c8c8c",
    "backward": "#4d4d4d",
    "optimizer": PARTS["optimizer"],
    "gap": WAITING,
    "copy": "#999933",
}
"""Greys compute; what is in colour moves or waits."""


ORDER: Final = (
    "forward",
    "backward",
    "optimizer",
    "compute stream idle",
    "parameters move",
    "gradients move",
    "host and drive",
)
"""What colours mean, as they are listed."""


def _colour(work: Work) -> tuple[str, str]:
    """Return a work's colour and what it means; collectives have that of what they move."""
    if work.doing != "collective":
        word = {"gap": "compute stream idle", "copy": "host and drive"}.get(work.doing, work.doing)
        return COLOURS[work.doing], word
    if work.stream == "all-gather" or "gather" in work.what.rpartition(", ")[2]:
        return PARTS["parameters"], "parameters move"
    return PARTS["gradients"], "gradients move"


def draw_timeline(data: TimelineChart, ax: "Axes") -> "Axes":
    """Draw a lane for each stream."""
    from matplotlib.patches import Patch  # noqa: PLC0415  # only a chart needs matplotlib

    unit, word = time_unit(data.step_seconds)
    lanes = {stream: place for place, stream in enumerate(data.streams)}
    used: dict[str, str] = {}
    pieces: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for work in data.works:
        length = (work.end_seconds - work.start_seconds) / unit
        if length > 0:
            colour, meaning = _colour(work)
            used[meaning] = colour
            lane = pieces.setdefault((lanes[work.stream], colour), [])
            lane.append((work.start_seconds / unit, length))
    for (place, colour), each in pieces.items():
        joined = _joined(each, NARROWEST * data.step_seconds / unit)
        ax.broken_barh(joined, (place - 0.36, 0.72), color=colour, linewidth=0)
    ax.set_yticks(list(lanes.values()), list(lanes))
    ax.set(xlim=(0, data.step_seconds / unit), ylim=(len(lanes) - 0.45, -0.55))
    ax.set_xlabel(f"time since the start of the step [{word}]")
    ax.xaxis.set_major_formatter(PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    colours = sorted(used.items(), key=lambda each: ORDER.index(each[0]))
    lift = key(ax, [Patch(color=colour, label=word) for word, colour in colours], 3)
    headline(ax, data.title, data.context, lift)
    return ax


def _joined(pieces: list[tuple[float, float]], narrowest: float) -> list[tuple[float, float]]:
    """Join pieces between which no dot fits."""
    found: list[tuple[float, float]] = []
    for start, length in sorted(pieces):
        if found and start - sum(found[-1]) < narrowest:
            first = found[-1][0]
            found[-1] = (first, max(sum(found[-1]), start + length) - first)
        else:
            found.append((start, length))
    return found


KIND: Final = Kind(
    name="timeline",
    draw=draw_timeline,
    height=lambda data: 1.7 + 0.42 * max(2, len(data.streams)),
)
