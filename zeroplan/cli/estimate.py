"""`zeroplan estimate`: memory, communication and step time, every strategy side by side."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.cli.budget import Price, Tokens, answerer
from zeroplan.cli.files import write_whole
from zeroplan.cli.flags import Asked, SpecCommand, takes_several
from zeroplan.cli.options import NOTHING_FITS, OUTPUT, AsJson, ProfilesFolder
from zeroplan.cli.progress import working
from zeroplan.errors import UsageError
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_toml

if TYPE_CHECKING:
    from collections.abc import Callable

    from zeroplan.estimation.record import Estimate

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan estimate --model 70b --gpus 64 --link ib",
    "zeroplan estimate -m llama-3.1-8b -n 8 --strategy fsdp2 -s 8192 --json",
    "zeroplan estimate -m 7b --node dgx-a100 --show-spec",
    "zeroplan estimate -m 70b -n 64 --link ib,ethernet-100g --gpu h100-sxm5-80gb,a100-sxm4-80gb",
    "zeroplan estimate -m 8b -n 64 --tokens 2T --price 2.5",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_several
def estimate(
    asked: Asked,
    *,
    tokens: Tokens = None,
    price: Price = None,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
    to_csv: Annotated[
        str | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write one line per combination and strategy, in SI units.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    show_spec: Annotated[
        bool,
        typer.Option(
            "--show-spec",
            help="Print the resolved spec as TOML, which --spec reads back, and stop.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    best: Annotated[
        bool,
        typer.Option(
            "--best",
            help="Several values: show the fastest strategy of each combination alone.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Show more columns.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Estimate memory, communication and step time per GPU, every strategy side by side.

    Several values of a flag, with commas between them, are compared.
    """
    answer_one = answerer(tokens, price, Path(profiles) if profiles else None)
    if asked.varied:
        if show_spec:
            raise UsageError("--show-spec shows one spec: give one value to each flag.")
        fits = _compare(asked, answer_one, as_json=as_json, to_csv=to_csv, best=best)
    else:
        run = asked.run
        with working("estimating", quiet=as_json):
            answer = answer_one(run)
        if show_spec:
            sys.stdout.write(to_toml(answer.inputs))
            return
        _show(answer, run, as_json=as_json, to_csv=to_csv, wide=wide)
        fits = answer.fits
    if not fits:
        raise typer.Exit(NOTHING_FITS)


def _show(answer: "Estimate", run: Run, *, as_json: bool, to_csv: str | None, wide: bool) -> None:
    if to_csv is not None:
        from zeroplan.estimation.several import Answered, csv_of  # noqa: PLC0415

        write_whole(Path(to_csv), csv_of([Answered(values=(), answer=answer)]), "--csv")
    if as_json:
        sys.stdout.write(f"{answer.to_json()}\n")
        return
    from zeroplan.report.answer import answer_text  # noqa: PLC0415  # not for --json
    from zeroplan.report.terminal import page  # noqa: PLC0415

    sys.stdout.write(answer_text(answer, run, page(wide=wide), wide=wide))


def _compare(
    asked: Asked,
    answer_one: "Callable[[Run], Estimate]",
    *,
    as_json: bool,
    to_csv: str | None,
    best: bool,
) -> bool:
    """Lay all combinations side by side, return whether any fits."""
    from zeroplan.estimation.several import compare, csv_of  # noqa: PLC0415  # not for one

    with working("estimating", "combinations", quiet=as_json) as progress:
        told = compare(asked.values, asked.varied, answer_one, progress=progress)
    if to_csv is not None:
        write_whole(Path(to_csv), csv_of(told.answers), "--csv")
    if as_json:
        sys.stdout.write(f"{told.to_json()}\n")
    else:
        from zeroplan.report.several import comparison_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page  # noqa: PLC0415

        sys.stdout.write(comparison_text(told, page(), best=best))
    return told.fits
