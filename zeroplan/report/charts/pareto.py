"""`pareto`: the most tokens per second for the GPUs, or for the money."""

from typing import TYPE_CHECKING, Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.report.charts.picture import Kind
from zeroplan.report.charts.style import GREY, headline, log_ticks
from zeroplan.report.charts.words import shortened
from zeroplan.rows import significant
from zeroplan.search.record import Choice, Search
from zeroplan.search.select import rent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KIND", "ParetoChart", "data_pareto", "draw_pareto"]

BLUE: Final = "#0072b2"
MOST_NAMED: Final = 10
"""Plans whose names stand apart. [count]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoChart:
    """The plans than which none is both faster and less costly, and others."""

    context: str
    priced: bool
    """Whether the cost is US dollars an hour, not GPUs."""
    frontier: tuple[Choice, ...]
    """From the least costly to the fastest."""
    others: tuple[Choice, ...]

    @property
    def title(self) -> str:
        """What the fastest has over the least costly."""
        least, most = self.frontier[0], self.frontier[-1]
        if len(self.frontier) == 1:
            name, rate = _name(least), significant(least.tokens_per_second)
            return f"{name} on {least.gpus:,} GPUs is the best at {rate} tokens/s"
        cost = rent(most) / rent(least)
        gain = most.tokens_per_second / least.tokens_per_second
        what = "the money an hour buys" if self.priced else "the GPUs buy"
        return (
            f"{significant(cost)} times {what} {significant(gain)} times the tokens: up to "
            f"{significant(most.tokens_per_second)} tokens/s with {_name(most)}"
        )

    @property
    def alt(self) -> str:
        """Every plan of the frontier."""
        unit = " USD/h" if self.priced else " GPUs"
        told = (
            f"{significant(rent(each))}{unit}: {significant(each.tokens_per_second)} tokens/s "
            f"with {_name(each)}"
            for each in self.frontier
        )
        return f"Tokens per second against cost, {self.context}. {'; '.join(told)}."

    def rows(self) -> list[dict[str, object]]:
        """Return one line for each plan."""
        return [
            {
                "on_frontier": place < len(self.frontier),
                "gpu": each.gpu,
                "gpus": each.gpus,
                **{key.rpartition(".")[2]: value for key, value in each.keys.items()},
                "tokens_per_second": each.tokens_per_second,
                "device_bytes": each.device_bytes,
                "usd_per_hour": rent(each) if self.priced else None,
            }
            for place, each in enumerate((*self.frontier, *self.others))
        ]


def _name(choice: Choice) -> str:
    keys = choice.keys
    size, length = keys["training.micro_batch_size"], keys["training.sequence_length"]
    strategy = keys.get("sharding.strategy", "")
    return f"{strategy} {size} x {length:,}{choice.label}".strip()


def data_pareto(found: Search, model: str) -> ParetoChart:
    """Take the frontier of a search.

    Raises
    ------
    SpecError
        Nothing fits.

    """
    if not found.frontier or found.estimate is None:
        raise SpecError(
            "nothing to draw: no plan fits. `zeroplan plan` with the same flags tells what is near."
        )
    priced = found.frontier[0].usd_per_million_tokens is not None
    cluster = found.estimate.inputs.cluster
    parts = [shortened(model, 60), f"{found.fitting:,} of {found.plans:,} plans fit"]
    if len({each.gpu for each in found.frontier}) == 1:
        parts[1:1] = [str(cluster.gpu)]
    if "sharding.strategy" not in found.frontier[0].keys:
        parts.insert(1, str(found.estimate.inputs.sharding.strategy))
    on, unreal = set(map(id, found.frontier)), found.frontier[0].label
    return ParetoChart(
        context=" · ".join(parts),
        priced=priced,
        frontier=found.frontier,
        others=tuple(
            each
            for each in found.best
            if id(each) not in on
            and (each.usd_per_million_tokens is not None) == priced
            and each.label == unreal
        ),
    )


def draw_pareto(data: ParetoChart, ax: "Axes") -> "Axes":
    """Draw the frontier as a line, its plans by name, and the best of the others in grey."""
    xs, ys = _places(data.frontier)
    ax.scatter(*_places(data.others), s=10, color="#bbbbbb", zorder=2)
    ax.plot(xs, ys, color=BLUE, marker="o", drawstyle="steps-post", zorder=3)
    every = (*data.frontier, *data.others)
    log_ticks(ax, (each.tokens_per_second for each in every))
    ax.set_ylim(ax.get_ylim()[0] / 1.3, ax.get_ylim()[1])  # for the name of the lowest
    costs = [rent(each) for each in every]
    low, high = min(costs), max(costs)
    ax.set(xscale="log", xlim=(low / 1.6, high * 1.6))
    ticks = [low * 2**power for power in range(12) if low * 2**power <= high * 1.01]
    ax.set_xticks(ticks, [significant(tick) if data.priced else f"{tick:,.0f}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="US dollars an hour" if data.priced else "GPUs", ylabel="tokens/s of all GPUs")
    ax.grid(axis="y")
    _named(ax, data, xs, ys)
    headline(ax, data.title, data.context)
    return ax


def _places(choices: tuple[Choice, ...]) -> tuple[list[float], list[float]]:
    return [rent(each) for each in choices], [each.tokens_per_second for each in choices]


def _named(ax: "Axes", data: ParetoChart, xs: list[float], ys: list[float]) -> None:
    """Name plans below the line in the first half, above it in the second."""
    every = -(-len(xs) // MOST_NAMED)
    middle = (xs[0] * xs[-1]) ** 0.5
    for x, y, choice in list(zip(xs, ys, data.frontier, strict=True))[::every]:
        first = x <= middle
        offset, across, up = ((5, -3), "left", "top") if first else ((-5, 3), "right", "bottom")
        ax.annotate(
            _name(choice),
            (x, y),
            offset,
            textcoords="offset points",
            ha=across,
            va=up,
            fontsize=7.5,
            color=GREY,
        )


KIND: Final = Kind(name="pareto", draw=draw_pareto)
