"""`links`: step time, and how much of it is waiting, by the link between nodes."""

from collections.abc import Mapping
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.priced import Point, points
from zeroplan.report.charts.style import end_labels, headline, log_ticks, look_of
from zeroplan.report.charts.words import about, duration, percent
from zeroplan.rows import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "LINKS", "LinksChart", "Served", "data_links", "draw_links"]

LINKS: Final = (
    "nvlink",
    "ib",
    "ethernet-100g",
    "ethernet-25g",
    "ethernet-10g",
    "ethernet-1g",
)
"""From the widest to the narrowest; words stand for the GPU's usual generation."""

LONG: Final = 10
"""Letters of a link's name that stand in one line. [count]"""
MOST_LEVEL: Final = 7
"""Names of links that stand beside each other. [count]"""
ALIKE: Final = 0.01
"""Shares that differ by less are told as one. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One strategy over one link."""

    strategy: str
    link: str
    hypothetical: bool
    step_seconds: float
    waiting: float
    """Share of the step in which the GPU waits for communication. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksChart:
    """All strategies over all links."""

    context: str
    links: tuple[str, ...]
    found: tuple[Served, ...]

    def of(self, strategy: str) -> list[Served]:
        """Return a strategy's points in the order of the links."""
        mine = [each for each in self.found if each.strategy == strategy]
        return sorted(mine, key=lambda each: self.links.index(each.link))

    @property
    def strategies(self) -> list[str]:
        """The strategies, each once."""
        return list(dict.fromkeys(each.strategy for each in self.found))

    @property
    def title(self) -> str:
        """What the step of the fastest strategy on the narrowest link is made of."""
        last = [each for each in self.found if each.link == self.links[-1]]
        best = min(last, key=lambda each: each.step_seconds)
        first = self.of(best.strategy)[0]
        times = significant(best.step_seconds / first.step_seconds)
        return (
            f"On {best.link} the fastest, {best.strategy}, takes {times} times as long as on "
            f"{first.link} and waits {percent(best.waiting)} of it"
        )

    @property
    def alt(self) -> str:
        """Both ends of every line."""
        told = []
        for strategy in self.strategies:
            ends = self.of(strategy)
            told.append(
                f"{strategy} from {duration(ends[0].step_seconds)} on {ends[0].link} to "
                f"{duration(ends[-1].step_seconds)} on {ends[-1].link}, "
                f"{percent(ends[-1].waiting)} of it waiting"
            )
        return f"Step time by link between nodes, {self.context}: {'; '.join(told)}."

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each strategy and link."""
        return [
            {
                "strategy": each.strategy,
                "link": each.link,
                "hypothetical": each.hypothetical,
                "step_seconds": each.step_seconds,
                "waiting_fraction": each.waiting,
            }
            for strategy in self.strategies
            for each in self.of(strategy)
        ]


def data_links(values: Mapping[str, object], profiles: Path | None = None) -> LinksChart:
    """Price all strategies that values by dotted key leave open, over several links.

    `cluster.link` may be a list; one alone says nothing, and `LINKS` are taken.

    Raises
    ------
    SpecError
        All GPUs stand in one node, or nothing can be priced.

    """
    asked = values.get("cluster.link")
    found = points(
        {**values, "cluster.link": asked if isinstance(asked, list) else LINKS}, profiles
    )
    cluster = found[0].run.cluster
    if cluster.gpus <= (cluster.gpus_per_node or cluster.gpus):
        raise SpecError(
            f"cluster.gpus = {cluster.gpus}: one node, whose GPUs use no link between nodes; "
            "name more."
        )
    links = dict.fromkeys(str(point.run.cluster.link) for point in found)
    return LinksChart(
        context=about(found[0].run, link=False),
        links=tuple(links),
        found=tuple(map(_served, found)),
    )


def _served(point: Point) -> Served:
    return Served(
        strategy=point.strategy,
        link=str(point.run.cluster.link),
        hypothetical=point.hypothetical,
        step_seconds=point.step_seconds,
        waiting=point.waiting,
    )


def draw_links(data: LinksChart, axes: "tuple[Axes, Axes]") -> "tuple[Axes, Axes]":
    """Draw step time above and the share of waiting below."""
    time, share = axes
    places = {link: place for place, link in enumerate(data.links)}
    for strategy in data.strategies:
        line, look = data.of(strategy), look_of(strategy)
        xs = [places[each.link] for each in line]
        time.plot(xs, [each.step_seconds for each in line], **look)
        share.plot(xs, [100 * each.waiting for each in line], **look)
    unreal = {each.link for each in data.found if each.hypothetical}
    words = [
        f"{_broken(link)}\n(hypothetical)" if link in unreal else _broken(link)
        for link in data.links
    ]
    for ax in axes:
        ax.set_xlim(-0.25, len(data.links) - 0.75)
        ax.grid(axis="y")
    time.set_xticks(list(places.values()), [])
    share.set_xticks(list(places.values()), words)
    if len(words) > MOST_LEVEL:
        share.tick_params(axis="x", rotation=30)
    time.set_ylabel("seconds of a step [s]")
    log_ticks(time, (each.step_seconds for each in data.found))
    share.set(ylim=(0, 105), ylabel="of it waiting [%]", xlabel="link between nodes")
    _name(axes, data)
    headline(time, data.title, data.context)
    return axes


def _broken(link: str) -> str:
    """Return a link's name in two lines where it is long."""
    head, dash, tail = link.rpartition("-")
    return f"{head}{dash}\n{tail}" if len(link) > LONG and dash else link


def _name(axes: "tuple[Axes, Axes]", data: LinksChart) -> None:
    """Name the lines at their ends; shares that are alike get one name."""
    at = len(data.links) - 1
    ends = [data.of(strategy)[-1] for strategy in data.strategies]
    named = [
        (at, each.step_seconds, f"{each.strategy}, {duration(each.step_seconds)}", each.strategy)
        for each in ends
    ]
    shares = [
        (at, 100 * e.waiting, f"{e.strategy}, {percent(e.waiting)}", e.strategy) for e in ends
    ]
    if max(ends, key=_waiting).waiting - min(ends, key=_waiting).waiting < ALIKE and len(ends) > 1:
        least = min(each.waiting for each in ends)
        shares = [(at, 100 * least, _all([each.waiting for each in ends]), "")]
    for ax, labels in zip(axes, (named, shares), strict=True):
        end_labels(ax, [(x, y, text, look_of(name)["color"]) for x, y, text, name in labels])


def _all(shares: list[float]) -> str:
    """Name several shares by their one rounded figure, or by what none of them is below."""
    told = {percent(share) for share in shares}
    return f"all {told.pop()}" if len(told) == 1 else f"all {floor(100 * min(shares))} % or more"


def _waiting(each: Served) -> float:
    return each.waiting


KIND: Final = Kind(name="links", draw=draw_links, panels=lambda _: 2, height=lambda _: 5.2)
