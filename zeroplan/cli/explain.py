"""`zeroplan explain`: every term of one estimate."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.flags import SpecCommand, takes_run
from zeroplan.cli.options import NOTHING_FITS, OUTPUT, AsJson, ProfilesFolder
from zeroplan.cli.progress import working
from zeroplan.errors import UsageError
from zeroplan.spec.run import Run

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan explain --model 70b --gpus 64 --link ib",
    "zeroplan explain -m 7b -n 8 --strategy zero2 --json",
    "zeroplan explain -m 8b -n 16 --link ethernet-10g --strategy fsdp2 --why-slow",
    "zeroplan explain -m 8b -n 8 --strategy zero2 -b 16 --make-it-fit",
)

QUESTIONS: Final = "Questions"

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run
def explain(
    asked: Run,
    *,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
    why_slow: Annotated[
        bool,
        typer.Option(
            "--why-slow",
            help="Say what the seconds are spent on, what goes through each NIC, what hides the "
            "communication, and what would be faster.",
            rich_help_panel=QUESTIONS,
        ),
    ] = False,
    make_it_fit: Annotated[
        bool,
        typer.Option(
            "--make-it-fit",
            help="Find the three cheapest changes with which it fits.",
            rich_help_panel=QUESTIONS,
        ),
    ] = False,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="List the smallest storages too.", rich_help_panel=OUTPUT),
    ] = False,
) -> None:
    """Explain one estimate: every term, the moment of the peak, which assumption matters most."""
    if why_slow and make_it_fit:
        raise UsageError("--why-slow and --make-it-fit are two questions: ask one at a time.")
    if why_slow or make_it_fit:
        fits = _advise(asked, Path(profiles) if profiles else None, slow=why_slow, as_json=as_json)
        if not fits:
            raise typer.Exit(NOTHING_FITS)
        return
    from zeroplan.estimation.explain import explain as explain_run  # noqa: PLC0415  # not for --help

    with working("explaining", quiet=as_json):
        told = explain_run(asked, profiles=Path(profiles) if profiles else None)
    if as_json:
        sys.stdout.write(f"{told.to_json()}\n")
    else:
        from zeroplan.report.explain import explanation_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page  # noqa: PLC0415

        sys.stdout.write(explanation_text(told, page(wide=wide), wide=wide))
    if not told.estimate.fits:
        raise typer.Exit(NOTHING_FITS)


def _advise(asked: Run, profiles: Path | None, *, slow: bool, as_json: bool) -> bool:
    """Answer one of the two questions, return whether there is something that fits."""
    from zeroplan.report.advice import fit_text, slow_text  # noqa: PLC0415  # not for --help
    from zeroplan.report.terminal import page  # noqa: PLC0415

    if slow:
        from zeroplan.estimation.why_slow import why_slow  # noqa: PLC0415

        with working("looking for what is slow", quiet=as_json):
            reasons = why_slow(asked, profiles=profiles)
        text = reasons.to_json() + "\n" if as_json else slow_text(reasons, page())
        sys.stdout.write(text)
        return reasons.estimate.fits
    from zeroplan.estimation.make_it_fit import make_it_fit  # noqa: PLC0415

    with working("trying changes", quiet=as_json):
        changes = make_it_fit(asked, profiles=profiles)
    sys.stdout.write(changes.to_json() + "\n" if as_json else fit_text(changes, page()))
    return changes.answered
