"""`collective`: bandwidth against message size, predicted and, where there is a table, measured."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from zeroplan.backtesting.collectives import Measured, collective_of, measured_collectives
from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric, ring_bandwidth
from zeroplan.errors import SpecError
from zeroplan.hardware import Catalogue
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import GREY, end_labels, headline, log_ticks
from zeroplan.rows import significant
from zeroplan.schedule.events import CollectiveName
from zeroplan.sharding.groups import Group
from zeroplan.units import GB, GIB, MIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "KIND",
    "CollectiveChart",
    "Curve",
    "data_collective",
    "data_measured",
    "draw_collective",
]

SHOWN: Final[tuple[CollectiveName, ...]] = ("all_gather", "reduce_scatter", "all_reduce")
COLOURS: Final[dict[CollectiveName, str]] = {
    "all_gather": "#0072b2",
    "reduce_scatter": "#56b4e9",
    "all_reduce": "#009e73",
    "all_to_all": "#cc79a7",
    "broadcast": "#b07700",
    "reduce": "#d55e00",
}
SIZES: Final = tuple(2**power for power in range(14, 35))
"""16 KiB to 16 GiB. [B]"""
MOST: Final = 4
"""Curves that stand apart. [count]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One collective of one group over message sizes, as nccl-tests counts both."""

    name: CollectiveName
    group: Group
    sizes: tuple[int, ...]
    """[B]"""
    predicted: tuple[float, ...]
    """Bus bandwidth. [B/s]"""
    measured: tuple[tuple[int, float], ...] = ()
    """Sizes [B] with bus bandwidths [B/s]."""
    limit: float
    """What the links carry of a ring. [B/s]"""

    @property
    def words(self) -> str:
        """Its name with its ranks."""
        return f"{self.name.replace('_', '-')}, {self.group.ranks:,} GPUs"

    @property
    def half_bytes(self) -> int:
        """Smallest of the sizes that reaches half of the highest bandwidth. [B]"""
        half = max(self.predicted) / 2
        pairs = zip(self.sizes, self.predicted, strict=True)
        return next(size for size, rate in pairs if rate >= half)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveChart:
    """Collectives over one link."""

    link: str
    context: str
    curves: tuple[Curve, ...]

    @property
    def title(self) -> str:
        """What a link reaches, and from which size half of it."""
        curve = self.curves[0]
        top = significant(max(curve.predicted) / GB)
        told = (
            f"{curve.words} on {self.link}: {top} GB/s, half of it from {_size(curve.half_bytes)}"
        )
        every = [error for each in self.curves for error in _errors(each)]
        if every:
            middle = sorted(map(abs, every))[len(every) // 2]
            told = (
                f"Half of {len(every):,} measured calls on {self.link} are within "
                f"{significant(100 * middle, 2)} % of the curves"
            )
        return told

    @property
    def alt(self) -> str:
        """The top and the half of every curve."""
        told = (
            f"{curve.words}: up to {significant(max(curve.predicted) / GB)} GB/s, half of it from "
            f"{_size(curve.half_bytes)}, {len(curve.measured)} measured points"
            for curve in self.curves
        )
        return f"Bus bandwidth against message size on {self.link}. {'; '.join(told)}."

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each point of each curve, and each measured one."""
        kinds = ("predicted", "measured")
        return [
            {
                "collective": curve.name,
                "gpus": curve.group.ranks,
                "nodes": curve.group.nodes,
                "link": self.link,
                "kind": kind,
                "message_bytes": size,
                "bus_bytes_per_second": rate,
            }
            for curve in self.curves
            for kind in kinds
            for size, rate in (
                zip(curve.sizes, curve.predicted, strict=True)
                if kind == kinds[0]
                else curve.measured
            )
        ]


def _errors(curve: Curve) -> list[float]:
    """Return by how much each measured point lies off the curve, between its sizes. [1]"""
    from numpy import interp, log  # noqa: PLC0415  # only where there is a table

    at = [log(size) for size, _ in curve.measured]
    expected = interp(at, [log(size) for size in curve.sizes], curve.predicted)
    pairs = zip(expected, curve.measured, strict=True)
    return [float(rate / found - 1) for rate, (_, found) in pairs]


def _size(size: int) -> str:
    if size >= GIB:
        return f"{size / GIB:g} GiB"
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size // 2**10} KiB"


def _curve(name: CollectiveName, group: Group, wires: Fabric, calls: list[Measured]) -> Curve:
    stays = calls[0].in_place if calls else None
    rates = []
    for size in SIZES:
        call = collective_of(name, group, size)
        rates.append(float(call.wire_bytes / collective_seconds(call, wires, in_place=stays)))
    return Curve(
        name=name,
        group=group,
        sizes=SIZES,
        predicted=tuple(rates),
        measured=tuple(
            sorted((int(m.call.message_bytes), m.call.wire_bytes / m.seconds) for m in calls)
        ),
        limit=float(ring_bandwidth(group, wires)),
    )


def data_collective(wires: Fabric, group: Group, context: str) -> CollectiveChart:
    """Predict all collectives of a group.

    Raises
    ------
    SpecError
        The group is one GPU.

    """
    if group.ranks == 1:
        raise SpecError("cluster.gpus = 1: one GPU sends nothing; name more.")
    return CollectiveChart(
        link=(wires.inter if group.nodes > 1 else wires.intra).id,
        context=context,
        curves=tuple(_curve(name, group, wires, []) for name in SHOWN),
    )


def data_measured(path: Path, catalogue: Catalogue, link: str | None = None) -> CollectiveChart:
    """Lay measured collectives of one link over their curves: those measured at most sizes.

    Parameters
    ----------
    path
        A table of collectives, as for `zeroplan backtest --collectives`.
    catalogue
        The hardware that the table names.
    link
        The link; without it the one with most rows.

    Raises
    ------
    SpecError
        The file is no such table, or has nothing on that link.

    """
    rows, skipped = measured_collectives(path, catalogue)
    links = Counter(row.outer.id for row in rows)
    if not rows or (link is not None and link not in links):
        known = ", ".join(links) or f"none; {skipped[0].why if skipped else 'it has no rows'}"
        raise SpecError(f"{path}: no collective on {link or 'a known link'}. It has: {known}.")
    chosen = link or links.most_common(1)[0][0]
    named: dict[tuple[str, Group, bool | None], list[Measured]] = {}
    for row in rows:
        if row.outer.id == chosen and row.call.name in get_args(CollectiveName):
            named.setdefault((row.call.name, row.call.group, row.in_place), []).append(row)
    most = sorted(named.values(), key=len, reverse=True)[:MOST]
    curves = (
        _curve(calls[0].call.name, calls[0].call.group, calls[0].wires, calls) for calls in most
    )
    shown = sum(map(len, most))
    return CollectiveChart(
        link=chosen,
        context=f"{path.name} · {shown:,} of {links[chosen]:,} rows on this link",
        curves=tuple(curves),
    )


def draw_collective(data: CollectiveChart, ax: "Axes") -> "Axes":
    """Draw predictions as lines and measurements as points."""
    dashes = ["-", "--", ":", "-."]
    groups = list(dict.fromkeys(curve.group.ranks for curve in data.curves))
    for curve in data.curves:
        colour, dash = COLOURS[curve.name], dashes[groups.index(curve.group.ranks)]
        ax.plot(curve.sizes, [rate / GB for rate in curve.predicted], color=colour, ls=dash)
        if curve.measured:
            sizes, rates = zip(*curve.measured, strict=True)
            ys = [rate / GB for rate in rates]
            ax.scatter(sizes, ys, s=14, color=colour, edgecolors="white", linewidths=0.4, zorder=3)
    sizes_shown = [SIZES[0], *(size for curve in data.curves for size, _ in curve.measured)]
    ax.set(xscale="log", xlim=(min(sizes_shown) / 1.3, SIZES[-1] * 1.3))
    every = [r / GB for c in data.curves for r in (*c.predicted, *(rate for _, rate in c.measured))]
    limits = sorted({round(curve.limit / GB, 6) for curve in data.curves})
    log_ticks(ax, [*every, limits[-1]])
    ticks = SIZES[0::4]
    ax.set_xticks(ticks, [_size(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    for limit in limits[-1:]:
        ax.axhline(limit, color="black", lw=1)
        words = f"what the links carry of a ring: {significant(limit)} GB/s"
        ax.text(min(sizes_shown), limit * 1.06, words, va="bottom", color=GREY, fontsize=7.5)
    ax.set(xlabel="message", ylabel="bus bandwidth [GB/s]")
    ax.grid(axis="y")
    end_labels(
        ax,
        [(c.sizes[-1], c.predicted[-1] / GB, c.words, COLOURS[c.name]) for c in data.curves],
    )
    headline(ax, data.title, data.context)
    return ax


KIND: Final = Kind(name="collective", draw=draw_collective)
