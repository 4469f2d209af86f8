"""`zeroplan estimate`: memory, communication and step time, every strategy side by side."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.flags import SpecCommand, takes_run
from zeroplan.cli.options import NOTHING_FITS, OUTPUT, AsJson, ProfilesFolder
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_toml

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan estimate --model 70b --gpus 64 --link ib",
    "zeroplan estimate -m llama-3.1-8b -n 8 --strategy fsdp2 -s 8192 --json",
    "zeroplan estimate -m 7b --node dgx-a100 --show-spec",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run
def estimate(
    asked: Run,
    *,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
    show_spec: Annotated[
        bool,
        typer.Option(
            "--show-spec",
            help="Print the resolved spec as TOML, which --spec reads back, and stop.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Show more columns.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Estimate memory, communication and step time per GPU, every strategy side by side."""
    from zeroplan.estimation import estimate as answer_to  # noqa: PLC0415  # not for --help

    answer = answer_to(asked, profiles=Path(profiles) if profiles else None)
    if show_spec:
        sys.stdout.write(to_toml(answer.inputs))
        return
    if as_json:
        sys.stdout.write(f"{answer.to_json()}\n")
    else:
        from zeroplan.report.answer import answer_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page  # noqa: PLC0415

        sys.stdout.write(answer_text(answer, asked, page(wide=wide), wide=wide))
    if not answer.fits:
        raise typer.Exit(NOTHING_FITS)
