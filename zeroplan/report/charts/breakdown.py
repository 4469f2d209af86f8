"""`breakdown`: what the seconds of each strategy's step go to."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from zeroplan.estimation.explain_case import case_of
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.estimation.why_slow import Part, parts_of
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import PLAIN, WAITING, headline, ink_on, key
from zeroplan.report.charts.words import (
    Answer,
    about,
    duration,
    joined,
    labelled,
    percent,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "BreakdownChart", "Spent", "data_breakdown", "draw_breakdown"]

COLOURS: Final = {
    "compute": "#4d4d4d",
    "memory_bandwidth": "#8c8c8c",
    "host": "#d0d0d0",
    "communication": WAITING,
    "offload": "#999933",
}
"""By cause: greys work, colours wait."""

WIDE: Final = 0.07
"""Share of the longest step in which a percentage can be read. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One strategy's step."""

    name: str
    step_seconds: float
    parts: tuple[Part, ...]

    @property
    def most(self) -> Part:
        """What takes most of it."""
        return max(self.parts, key=lambda part: part.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownChart:
    """Steps side by side."""

    context: str
    steps: tuple[Spent, ...]

    @property
    def title(self) -> str:
        """The fastest, and what takes most of its step."""
        best = min(self.steps, key=lambda spent: spent.step_seconds)
        part = best.most
        of = percent(part.seconds / best.step_seconds)
        first = "" if len(self.steps) == 1 else ", the fastest,"
        return f"{best.name}{first} takes {duration(best.step_seconds)}, {of} of it {part.name}"

    @property
    def alt(self) -> str:
        """Every step with its parts."""
        told = (
            f"{spent.name} {duration(spent.step_seconds)}, of which "
            + joined(
                [f"{part.name} {duration(part.seconds)}" for part in spent.parts if part.seconds]
            )
            for spent in self.steps
        )
        return f"Stacked bars of step time, {self.context}. {'; '.join(told)}."

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each step."""
        return [
            {
                "name": spent.name,
                **{f"{part.name.replace(' ', '_')}_seconds": part.seconds for part in spent.parts},
                "step_seconds": spent.step_seconds,
            }
            for spent in self.steps
        ]


def data_breakdown(told: Answer, profiles: Path | None = None) -> BreakdownChart:
    """Replay the step of every estimate, of one question or of several side by side."""
    bars = list(labelled(told))
    several = len({run.cluster for _, run, _ in bars}) > 1
    questions: dict[int, Question] = {}
    for _, run, _ in bars:
        questions.setdefault(id(run), resolve(run, profiles))
    return BreakdownChart(
        context=about(bars[0][1], gpus=not several),
        steps=tuple(_spent(name, questions[id(run)], each, profiles) for name, run, each in bars),
    )


def _spent(name: str, question: Question, now: StrategyEstimate, profiles: Path | None) -> Spent:
    case = case_of(question, now, profiles)
    timing = case.walked(case.price, question.wires)
    return Spent(name=name, step_seconds=timing.step_seconds, parts=tuple(parts_of(timing, now)))


def draw_breakdown(data: BreakdownChart, ax: "Axes") -> "Axes":
    """Draw a bar for each step."""
    from matplotlib.patches import Patch  # noqa: PLC0415  # only a chart needs matplotlib

    longest = max(spent.step_seconds for spent in data.steps)
    unit, word = time_unit(longest)
    for place, spent in enumerate(data.steps):
        _stack(ax, place, spent, longest, unit)
    ax.set(xlim=(0, longest / unit * 1.14), ylim=(len(data.steps) - 0.4, -0.6))
    ax.set_yticks(range(len(data.steps)), [spent.name for spent in data.steps])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"time of a step [{word}]")
    ax.xaxis.set_major_formatter(PLAIN)
    ax.grid(axis="x")
    shown = {
        part.name: COLOURS[part.cause]
        for spent in data.steps
        for part in spent.parts
        if part.seconds > 0
    }
    lift = key(ax, [Patch(color=colour, label=name) for name, colour in shown.items()], 3)
    headline(ax, data.title, data.context, lift)
    return ax


def _stack(ax: "Axes", place: int, spent: Spent, longest: float, unit: float) -> None:
    left = 0.0
    for part in spent.parts:
        colour, size = COLOURS[part.cause], part.seconds / unit
        ax.barh(place, size, 0.66, left, color=colour, edgecolor="white", linewidth=0.5)
        if part.seconds > WIDE * longest:
            words, middle = percent(part.seconds / spent.step_seconds), left + size / 2
            ink = ink_on(colour)
            ax.text(middle, place, words, ha="center", va="center", color=ink, fontsize=7.5)
        left += size
    ax.text(left + 0.008 * longest / unit, place, duration(spent.step_seconds), va="center")


KIND: Final = Kind(
    name="breakdown",
    draw=draw_breakdown,
    height=lambda data: 1.6 + 0.3 * max(3, len(data.steps)),
)
