"""`zeroplan calibrate`: measurements in, a new profile file out."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.files import write_whole
from zeroplan.cli.light import LightCommand
from zeroplan.cli.options import AsJson, ProfilesFolder
from zeroplan.errors import UsageError

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan calibrate --collectives nccl.csv --link ib-ndr400",
    "zeroplan calibrate --collectives nccl.csv --link nvlink4 --output own/links/our-nvlink.toml",
    "zeroplan calibrate --collectives all_gather.log --link nvlink3",
    "zeroplan calibrate --collectives nccl.csv --link roce-400 --only all_gather --json",
)

app = typer.Typer(add_completion=False)


@app.command(cls=LightCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
def calibrate(
    *,
    collectives: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Measured collectives: a table (.csv), or a log of nccl-tests."
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Link to fit; what the points cannot tell it keeps."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the new profile there."),
    ] = None,
    constants: Annotated[
        str, typer.Option(metavar="KEY,KEY", help="Fit these keys of the profile only.")
    ] = "",
    only: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Use these collectives only.")
    ] = "",
    gpus: Annotated[str, typer.Option(metavar="ID,ID", help="Use runs on these GPUs only.")] = "",
    min_bytes: Annotated[str, typer.Option(metavar="N", help="Use no smaller messages. [B]")] = "0",
    equal_sources: Annotated[
        bool,
        typer.Option("--equal-sources", help="Let every source weigh the same, not every point."),
    ] = False,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Fit the constants of a link to measured collectives and write them as a new profile.

    A table has the columns of `zeroplan backtest --collectives`. Of a log of
    nccl-tests or rccl-tests, every run counts as one on the link. Errors are
    shown on the fitted points and on sources that were held out. No file is
    overwritten.
    """
    if collectives is None or link is None:
        raise UsageError("name a table with --collectives and a link with --link.")
    target = None if output is None else Path(output)
    if target is not None and target.exists():
        raise UsageError(f"--output {target}: there is such a file; name a new one.")
    if not min_bytes.isdecimal():
        raise UsageError(f"--min-bytes {min_bytes!r}: write a whole number of bytes.")
    from zeroplan.calibration import Choice, calibrate_collectives  # noqa: PLC0415  # not for --help

    result = calibrate_collectives(
        collectives,
        link,
        choice=Choice(
            constants=_words(constants),
            collectives=_words(only),
            gpus=_words(gpus.lower()),
            min_bytes=int(min_bytes),
            equal_sources=equal_sources,
        ),
        name="" if target is None else target.stem,
        profiles=Path(profiles) if profiles else None,
    )
    if target is not None:
        write_whole(target, result.to_toml(), "--output")
    if as_json:
        sys.stdout.write(f"{result.to_json()}\n")
        return
    from zeroplan.report.calibrate import calibration_text  # noqa: PLC0415  # not for --json
    from zeroplan.report.terminal import page  # noqa: PLC0415

    sys.stdout.write(calibration_text(result, page()))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
