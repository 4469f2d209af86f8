"""`zeroplan report`: one page of HTML that answers a question and the ones around it."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.cli.budget import Price, Tokens, answerer
from zeroplan.cli.files import write_whole
from zeroplan.cli.flags import Asked, SpecCommand, flag, takes_several
from zeroplan.cli.options import NOTHING_FITS, OUTPUT, AsJson, ProfilesFolder
from zeroplan.cli.progress import working
from zeroplan.errors import UsageError
from zeroplan.spec.reading import read_run

if TYPE_CHECKING:
    from zeroplan.estimation.record import Estimate

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan report --model 70b --gpus 64 --link ib --output report.html",
    "zeroplan report -m 8b -n 16,32,64 --link ethernet-100g,ib --output what-if.html",
    "zeroplan report -m 8b -n 64 --tokens 2T --price 2.5",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_several
def report(
    asked: Asked,
    *,
    tokens: Tokens = None,
    price: Price = None,
    profiles: ProfilesFolder = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write the page.",
            rich_help_panel=OUTPUT,
        ),
    ] = "report.html",
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page: verdict, charts, what-if, assumptions and their sources.

    Strategy, GPUs, link, micro-batch and sequence length may have several values,
    with commas between them: the first is the question, all are offered in the page.
    """
    from zeroplan.report.page.document import page_html  # noqa: PLC0415  # not for --help
    from zeroplan.report.page.grid import AXES, grid  # noqa: PLC0415

    path = Path(output)
    if path.suffix not in (".html", ".htm"):
        raise UsageError(f"--output {output!r}: a report is HTML; name it {path.stem}.html.")
    single = next((key for key in asked.varied if key not in AXES), None)
    if single is not None:
        raise UsageError(f"{flag(single)}: give it one value; a page offers several of other keys.")
    folder = Path(profiles) if profiles else None
    values = {**asked.values, **{key: several[0] for key, several in asked.varied.items()}}
    run = read_run(values)
    answer_one = answerer(tokens, price, folder)
    with working("pricing what the page offers", quiet=as_json):
        answer = answer_one(run)
        around = grid(answer, values, asked.varied, folder)
    others = {"--tokens": tokens, "--price": price, "--profiles": profiles}
    commands = _commands(asked, values, others)
    write_whole(path, page_html(answer, run, around, commands, folder), "--output")
    _say(answer, as_json=as_json)
    if not answer.fits:
        raise typer.Exit(NOTHING_FITS)


def _say(answer: "Estimate", *, as_json: bool) -> None:
    """Print what the page says first."""
    if as_json:
        sys.stdout.write(f"{answer.to_json()}\n")
        return
    from zeroplan.report.terminal import page, prose  # noqa: PLC0415  # not for --json
    from zeroplan.report.words import verdicts  # noqa: PLC0415

    sys.stdout.write(prose(verdicts(answer), page()))


def _commands(
    asked: Asked, values: dict[str, object], others: dict[str, str | None]
) -> tuple[str, str]:
    """Return the lines that give the answer in a terminal, and this page."""
    from zeroplan.spec.hints import spelled  # noqa: PLC0415

    told = {"estimate": values, "report": {**values, **asked.varied}}
    common = [word for option, text in others.items() if text for word in (option, text)]
    lines = []
    for command, given in told.items():
        words = (
            word
            for key, value in given.items()
            for word in (
                flag(key),
                ",".join(map(spelled, value)) if isinstance(value, list) else spelled(value),
            )
        )
        lines.append(shlex.join(("zeroplan", command, *words, *common)))
    return lines[0], lines[1]
