"""`zeroplan explain`: every term of one estimate."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.flags import SpecCommand, takes_run
from zeroplan.cli.options import NOTHING_FITS, OUTPUT, AsJson, ProfilesFolder
from zeroplan.spec.run import Run

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan explain --model 70b --gpus 64 --link ib",
    "zeroplan explain -m 7b -n 8 --strategy zero2 --json",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run
def explain(
    asked: Run,
    *,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="List the smallest storages too.", rich_help_panel=OUTPUT),
    ] = False,
) -> None:
    """Explain one estimate: every term, the moment of the peak, which assumption matters most."""
    from zeroplan.estimation.explain import explain as explain_run  # noqa: PLC0415  # not for --help

    told = explain_run(asked, profiles=Path(profiles) if profiles else None)
    if as_json:
        sys.stdout.write(f"{told.to_json()}\n")
    else:
        from zeroplan.report.explain import explanation_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page  # noqa: PLC0415

        sys.stdout.write(explanation_text(told, page(wide=wide), wide=wide))
    if not told.estimate.fits:
        raise typer.Exit(NOTHING_FITS)
