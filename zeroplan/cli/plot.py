"""`zeroplan plot`: charts, each with its numbers as CSV."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from zeroplan.cli.budget import PRICES
from zeroplan.cli.completion import offer, words
from zeroplan.cli.files import write_whole
from zeroplan.cli.flags import Asked, SpecCommand, flag, takes_later
from zeroplan.cli.options import OUTPUT, ProfilesFolder
from zeroplan.cli.pictures import suffix_of, write_picture
from zeroplan.cli.progress import working
from zeroplan.errors import UsageError, perhaps

if TYPE_CHECKING:
    from zeroplan.estimation.explain_case import Case
    from zeroplan.report.charts.picture import Chart, Kind
    from zeroplan.report.charts.words import Answer

__all__ = ["EXAMPLES", "KINDS", "app"]

EXAMPLES: Final = (
    "zeroplan plot memory --model 70b --gpus 64 --link ib",
    "zeroplan plot scaling -m 8b --link ib --gpus 8..64 --output scaling.png",
    "zeroplan plot links -m 8b -n 16 --strategy zero2,fsdp2",
    "zeroplan plot timeline -m 8b -n 16 --link ethernet-25g --strategy fsdp2 --output step.pdf",
    "zeroplan plot collective -n 64 --link ib",
)

EVERY: Final = "every flag"
MOST_GPUS: Final = 512
"""Up to where `pareto` looks where nothing is said. [count]"""
STRATEGY: Final = "sharding.strategy"

app = typer.Typer(add_completion=False)


class Question(NamedTuple):
    """What a chart is drawn from."""

    asked: Asked
    measured: Path | None
    price: str | None
    profiles: Path | None
    progress: Callable[[int, int], None] | None

    @property
    def values(self) -> dict[str, object]:
        """All values by dotted key, those that vary as lists."""
        return {**self.asked.values, **self.asked.varied}


class Way(NamedTuple):
    """How the data of one kind of chart is found."""

    data: Callable[[Any, Question], "Chart"]
    """Takes the module of the chart."""
    about: str
    several: tuple[str, ...] = ()
    """Keys that may have several values."""
    model: bool = True
    """Whether a model must be named."""
    things: str = ""
    """What is counted while it takes long."""


def _answers(question: Question) -> "Answer":
    """Answer one question, or several side by side."""
    from zeroplan.estimation import estimate  # noqa: PLC0415  # not for --help
    from zeroplan.estimation.several import compare  # noqa: PLC0415

    def answer(run: Any) -> Any:
        return estimate(run, profiles=question.profiles)

    asked = question.asked
    return compare(asked.values, asked.varied, answer) if asked.varied else answer(asked.run)


def _case(question: Question) -> "Case":
    """Look into the strategy that is named, or the fastest that fits."""
    from zeroplan.estimation.choice import choose  # noqa: PLC0415
    from zeroplan.estimation.explain_case import case_of  # noqa: PLC0415
    from zeroplan.estimation.resolve import resolve  # noqa: PLC0415

    chosen = choose(resolve(question.asked.run, question.profiles))
    return case_of(chosen.question, chosen.estimate, question.profiles)


def _pareto(module: Any, question: Question) -> "Chart":
    from zeroplan.estimation.budget import parse_prices  # noqa: PLC0415
    from zeroplan.search.plan import TRIED, search  # noqa: PLC0415
    from zeroplan.search.space import space_of  # noqa: PLC0415

    doublings = [8 << doubling for doubling in range((MOST_GPUS // 8).bit_length())]
    values = {"cluster.gpus": doublings, **TRIED, **question.values}
    found = search(
        space_of(values, profiles=question.profiles),
        "fastest",
        prices=parse_prices(question.price, question.profiles),
        progress=question.progress,
    )
    chart: Chart = module.data_pareto(found, str(values.get("model.source")))
    return chart


def _collective(module: Any, question: Question) -> "Chart":
    from zeroplan.estimation.resolve import resolve_cluster  # noqa: PLC0415
    from zeroplan.hardware import load_catalogue  # noqa: PLC0415
    from zeroplan.sharding.groups import contiguous  # noqa: PLC0415
    from zeroplan.spec.reading import read_run  # noqa: PLC0415

    catalogue, values = load_catalogue(question.profiles), question.asked.values
    run = read_run({"model.source": "", **values})
    cluster, _, wires = resolve_cluster(run.cluster, catalogue)
    chart: Chart
    if question.measured is not None:
        link = wires.inter.id if "cluster.link" in values else None
        chart = module.data_measured(question.measured, catalogue, link)
    else:
        group = contiguous("world", cluster.gpus, wires.gpus_per_node)
        chart = module.data_collective(wires, group, f"{cluster.gpus:,} x {cluster.gpu}")
    return chart


def _parity(module: Any, question: Question) -> "Chart":
    from zeroplan.backtesting import backtest  # noqa: PLC0415

    if question.measured is None:
        raise UsageError("plot parity: no table: name a CSV of measured runs with --measured.")
    found = backtest(question.measured, profiles=question.profiles, progress=question.progress)
    if not found.rows:
        raise UsageError(f"--measured {question.measured}: no row can be predicted.")
    chart: Chart = module.data_parity(found)
    return chart


def _priced(name: str) -> Callable[[Any, Question], "Chart"]:
    return lambda module, question: getattr(module, name)(question.values, question.profiles)


KINDS: Final[Mapping[str, Way]] = {
    "memory": Way(
        lambda module, question: module.data_memory(_answers(question)),
        "what each strategy's peak is made of, against the GPU's limit",
        (EVERY,),
    ),
    "scaling": Way(
        _priced("data_scaling"),
        "memory and step time against GPUs, 8 to 4,096",
        ("cluster.gpus", STRATEGY),
    ),
    "links": Way(
        _priced("data_links"),
        "step time and share of waiting by link, NVLink to 1 Gbit Ethernet",
        ("cluster.link", STRATEGY),
    ),
    "timeline": Way(
        lambda module, question: module.data_timeline(_case(question)),
        "what each stream does over one step",
    ),
    "memory-timeline": Way(
        lambda module, question: module.data_memory_timeline(_case(question)),
        "live bytes over the step, the peak named",
    ),
    "fit": Way(
        _priced("data_fit"),
        "micro-batch size by sequence length: what fits, with tokens/s",
        ("training.micro_batch_size", "training.sequence_length"),
    ),
    "breakdown": Way(
        lambda module, question: module.data_breakdown(_answers(question), question.profiles),
        "what each strategy's step time goes to",
        (EVERY,),
    ),
    "pareto": Way(
        _pareto,
        "the most tokens/s for the GPUs, or for the --price",
        (EVERY,),
        things="structures",
    ),
    "collective": Way(
        _collective,
        "bandwidth by message size, with the points of --measured",
        model=False,
    ),
    "parity": Way(_parity, "predicted against the runs of --measured", model=False, things="rows"),
}
"""Every kind of chart; its module in `zeroplan.report.charts` has the same name."""


@app.command(
    cls=SpecCommand,
    epilog="\n\n".join(
        (
            "Kinds:",
            *(f"{name}: {way.about}." for name, way in KINDS.items()),
            "Examples:",
            *EXAMPLES,
        )
    ),
)
@takes_later
def plot(
    ask: Callable[..., Asked],
    *,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="Kind of chart; they are listed below.",
            autocompletion=offer(words(*KINDS)),
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="PNG, SVG or PDF by its suffix; without it KIND.svg. The numbers go beside it as "
            "CSV.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.csv",
            help="Measured runs (parity) or collectives (collective), as for `zeroplan backtest`.",
            rich_help_panel="Data",
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="USD",
            help=f"Price of a GPU-hour (pareto), {PRICES}.",
            rich_help_panel="Data",
        ),
    ] = None,
    profiles: ProfilesFolder = None,
) -> None:
    """Draw a chart whose title says what is found, with its numbers as CSV beside it."""
    if kind is None or kind not in KINDS:
        known = ", ".join(KINDS)
        what = "no kind of chart" if kind is None else f"no kind of chart {kind!r}"
        raise UsageError(f"{what}: use one of {known}.{perhaps(kind or '', KINDS)}")
    path, way = Path(output or f"{kind}.svg"), KINDS[kind]
    suffix_of(path, "--output")
    asked = ask(model=way.model)
    _refuse_several(kind, way, asked)
    module = import_module(f"zeroplan.report.charts.{kind.replace('-', '_')}")
    table = None if measured is None else Path(measured)
    folder = Path(profiles) if profiles else None
    with working(f"pricing {kind}", way.things) as progress:
        data = way.data(module, Question(asked, table, price, folder, progress))
    drawn: Kind = module.KIND
    from zeroplan.rows import csv_text  # noqa: PLC0415  # not for --help

    write_picture(drawn, data, path, "--output")
    write_whole(path.with_suffix(".csv"), csv_text(data.rows()), "--output")


def _refuse_several(kind: str, way: Way, asked: Asked) -> None:
    """Say which flags of a kind may have several values, where another one has."""
    wrong = [key for key in asked.varied if key not in way.several]
    if wrong and EVERY not in way.several:
        able = " and ".join(map(flag, way.several)) or "no flag"
        raise UsageError(
            f"{flag(wrong[0])} has several values: plot {kind} takes several of {able}."
        )
