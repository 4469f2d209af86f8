"""`zeroplan export`: a plan as the file that a trainer loads."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.completion import offer, written_formats
from zeroplan.cli.files import write_whole
from zeroplan.cli.flags import SpecCommand, takes_run
from zeroplan.cli.options import OUTPUT, ProfilesFolder
from zeroplan.errors import UsageError
from zeroplan.spec.run import Run

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan export --format deepspeed -m 70b -n 64 --strategy zero3 --output ds_config.json",
    "zeroplan export --format accelerate --spec run.toml",
    "zeroplan export --format fsdp2 -m llama-3.1-8b -n 16 --strategy hsdp",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run
def export(
    asked: Run,
    *,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="WORD",
            help="deepspeed, accelerate, torchtitan, or fsdp2 for a script.",
            autocompletion=offer(written_formats),
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the file there.", rich_help_panel=OUTPUT
        ),
    ] = None,
    profiles: ProfilesFolder = None,
) -> None:
    """Write a plan as the file that a trainer loads; `zeroplan import` reads it back."""
    if form is None:
        raise UsageError("no format: say --format deepspeed, accelerate, torchtitan or fsdp2.")
    if asked.sharding.strategy is None:
        raise UsageError("no strategy: a file has one; name it with --strategy.")
    from zeroplan.estimation.resolve import resolve, strategy_groups  # noqa: PLC0415  # not for --help
    from zeroplan.foreign.writing import write_file  # noqa: PLC0415

    question = resolve(asked, Path(profiles) if profiles else None)
    (row,) = question.strategies
    ranks = strategy_groups(row, question.run).shard.ranks
    written = write_file(question.run, form, ranks)
    for remark in written.remarks:
        sys.stderr.write(f"zeroplan: {remark}.\n")
    if output is not None:
        write_whole(Path(output), written.text, "--output")
    else:
        sys.stdout.write(written.text)
