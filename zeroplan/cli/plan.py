"""`zeroplan plan`: which configuration."""

import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zeroplan.cli.budget import Price, Tokens
from zeroplan.cli.completion import offer, words
from zeroplan.cli.files import refuse_unwritable, write_by
from zeroplan.cli.flags import Asked, SpecCommand, flag, takes_several
from zeroplan.cli.options import NOTHING_FITS, OUTPUT, AsJson, ProfilesFolder, count
from zeroplan.cli.progress import working
from zeroplan.errors import INTERRUPTED, UsageError, perhaps

if TYPE_CHECKING:
    from zeroplan.search.journal import Journal
    from zeroplan.search.record import Search
    from zeroplan.search.space import Space

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan plan --model 70b --gpus 64 --link ib",
    "zeroplan plan -m 8b --min-gpus --sequence-length 8192",
    "zeroplan plan -m 8b -n 8..64 --objective cheapest --price 2.5 --tokens 2T",
    "zeroplan plan -m 70b -n 64 --global-batch-size 1024 --csv plans.csv",
)

SEARCH: Final = "Search"
MOST_GPUS: Final = 4096
"""Up to where `--min-gpus` looks. [count]"""

OBJECTIVES: Final = ("fastest", "cheapest", "fewest-gpus", "most-headroom")
"""Those of `zeroplan.search.record`, which help pages and shells do not wait for; the first where
none is asked for."""

FEW_FAMILIES: Final = 24
"""Families of structures that one process searches sooner than others are started. [count]"""

FEW_PLANS: Final = 100_000
"""Plans of which the same holds. [count]"""

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_several
def plan(
    asked: Asked,
    *,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help=f"What is best: {', '.join(OBJECTIVES[:-1])} or {OBJECTIVES[-1]}.",
            autocompletion=offer(words(*OBJECTIVES)),
            show_default=OBJECTIVES[0],
            rich_help_panel=SEARCH,
        ),
    ] = None,
    min_gpus: Annotated[
        bool,
        typer.Option(
            "--min-gpus",
            help="The fewest GPUs on which it fits: 1, 2, 4 ... unless --gpus says which to try.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    global_batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Sequences of all GPUs per step; micro-steps follow from it.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    tokens: Tokens = None,
    price: Price = None,
    allow_tight: Annotated[
        bool,
        typer.Option(
            "--allow-tight",
            help="Take plans within the uncertainty of the memory's limit, too.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Processes that search; one for each core where there is much to do.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep what is found in this file, and go on from what is there.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    profiles: ProfilesFolder = None,
    to_csv: Annotated[
        str | None,
        typer.Option(
            "--csv", metavar="FILE", help="Write every plan as a line.", rich_help_panel=OUTPUT
        ),
    ] = None,
    to_parquet: Annotated[
        str | None,
        typer.Option(
            "--parquet",
            metavar="FILE",
            help="The same as Parquet; needs pyarrow.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the best configuration among all combinations of the values given.

    A flag takes several values: 1,2,4 or 8..64, which doubles.
    What is not given is tried: strategies, micro-batch sizes, ways of
    checkpointing and of resharding.
    """
    wanted = _objective(objective, min_gpus)
    asked_workers = None if workers is None else count("--workers", workers)
    _verify_files({"--csv": to_csv, "--parquet": to_parquet, "--resume": resume})
    from zeroplan.estimation.budget import parse_prices, parse_tokens  # noqa: PLC0415  # not --help

    many = None if tokens is None else parse_tokens(tokens)
    space = _space(asked, min_gpus, global_batch_size, Path(profiles) if profiles else None)
    prices = parse_prices(price, space.profiles)
    if wanted == "cheapest" and "" not in prices:
        _verify_prices(space, prices)
    journal = None if resume is None else _journal(resume, space, wanted, prices, allow_tight)
    if to_csv is not None or to_parquet is not None:
        _write_all(space, to_csv, to_parquet, quiet=as_json)
    found = _search(
        space,
        wanted,
        prices=prices,
        allow_tight=allow_tight,
        tokens=many,
        workers=asked_workers,
        journal=journal,
        quiet=as_json,
    )
    if as_json:
        sys.stdout.write(f"{found.to_json()}\n")
    else:
        from zeroplan.report.plan import plan_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page  # noqa: PLC0415

        sys.stdout.write(plan_text(found, page(), command=_command(space, found)))
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.chosen is None:
        raise typer.Exit(NOTHING_FITS)


def _objective(word: str | None, min_gpus: bool) -> Any:
    fewest = "fewest-gpus"
    if word is None:
        return fewest if min_gpus else OBJECTIVES[0]
    if word not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise UsageError(f"--objective {word!r}: use one of {known}.{perhaps(word, OBJECTIVES)}")
    if min_gpus and word != fewest:
        raise UsageError(
            f"--min-gpus: looks for {fewest}, --objective for {word}: leave one of the two out."
        )
    return word


def _verify_files(named: dict[str, str | None]) -> None:
    """Refuse files that cannot be written as asked, before anything is searched."""
    options: dict[str, str] = {}
    for option, name in named.items():
        if name is None:
            continue
        if not name:
            raise UsageError(f"{option} '': name a file.")
        if option != "--resume":  # a search writes to that at once
            refuse_unwritable(Path(name), option)
        other = options.setdefault(os.path.realpath(name), option)
        if other != option:
            raise UsageError(f"{option} {name}: is the file of {other}, too; name another.")
    if named["--parquet"] is not None:
        from zeroplan.search.sweep import parquet_parts  # noqa: PLC0415  # not for --help

        parquet_parts()


def _space(asked: Asked, min_gpus: bool, batch: str | None, profiles: Path | None) -> "Space":
    from zeroplan.search.plan import TRIED  # noqa: PLC0415  # not for --help
    from zeroplan.search.space import space_of  # noqa: PLC0415

    values = {**TRIED, **asked.values, **asked.varied}
    if min_gpus and "cluster.gpus" not in {*asked.values, *asked.varied}:
        doublings = range(MOST_GPUS.bit_length())
        values["cluster.gpus"] = [1 << doubling for doubling in doublings]
    size = None if batch is None else count("--global-batch-size", batch)
    return space_of(values, global_batch_size=size, profiles=profiles)


def _verify_prices(space: "Space", prices: dict[str, float]) -> None:
    """Refuse to look for the cheapest where a GPU has no price, before anything is searched."""
    from zeroplan.estimation.budget import price_of  # noqa: PLC0415
    from zeroplan.estimation.resolve import named_gpu  # noqa: PLC0415
    from zeroplan.hardware import load_catalogue  # noqa: PLC0415
    from zeroplan.spec.run import ClusterChoice  # noqa: PLC0415

    catalogue = load_catalogue(space.profiles)
    named: Any = product(space.values("cluster.gpu"), space.values("cluster.node"))
    for gpu, node in named:
        found = named_gpu(gpu, node, catalogue).id
        if price_of(ClusterChoice(gpu=found, node=node), prices, space.profiles) is None:
            what = f"{found} in {node}" if node else found
            raise UsageError(
                f"--objective cheapest: no price is known for {what}: give it in USD per GPU-hour, "
                f"as in --price {found}=2.50, or --price 2.50 for all GPUs."
            )


def _journal(
    name: str, space: "Space", objective: Any, prices: dict[str, float], allow_tight: bool
) -> "Journal":
    from zeroplan.search.journal import Journal  # noqa: PLC0415  # not for --help
    from zeroplan.search.plan import families  # noqa: PLC0415

    return Journal(Path(name), space, families(space, objective), prices, allow_tight)


def _search(
    space: "Space",
    objective: Any,
    *,
    prices: dict[str, float],
    allow_tight: bool,
    tokens: int | None,
    workers: int | None,
    journal: "Journal | None",
    quiet: bool,
) -> "Search":
    from zeroplan.search.plan import search  # noqa: PLC0415

    families = len(space.families())
    several = families > FEW_FAMILIES or (families > 1 and space.plans > FEW_PLANS)
    usual = (os.cpu_count() or 1) if several else 1
    with working("searching", "structures", quiet=quiet) as progress:
        return search(
            space,
            objective,
            prices=prices,
            allow_tight=allow_tight,
            tokens=tokens,
            journal=journal,
            progress=progress,
            workers=workers or usual,
        )


def _write_all(space: "Space", to_csv: str | None, to_parquet: str | None, *, quiet: bool) -> None:
    from zeroplan.search.sweep import write_csv, write_parquet  # noqa: PLC0415

    for path, option, write in (
        (to_csv, "--csv", write_csv),
        (to_parquet, "--parquet", write_parquet),
    ):
        if path is not None:
            write_by(Path(path), partial(_write, write, space, quiet), option)


def _write(write: Callable[..., None], space: "Space", quiet: bool, part: Path) -> None:
    with working("pricing every plan", "structures", quiet=quiet) as progress:
        write(space, part, progress=progress)


def _command(space: "Space", found: "Search") -> str:
    """Return the `zeroplan estimate` line of the best plan."""
    if found.chosen is None:
        return ""
    from zeroplan.spec.hints import spelled  # noqa: PLC0415

    given = space.whole(found.chosen.keys)
    words = (word for key, value in given.items() for word in (flag(key), spelled(value)))
    return shlex.join(("zeroplan", "estimate", *words))
