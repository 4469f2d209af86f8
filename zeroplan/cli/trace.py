"""`zeroplan trace`: one predicted step for the viewers of traces."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.files import write_by, write_whole
from zeroplan.cli.flags import SpecCommand, takes_run
from zeroplan.cli.options import OUTPUT, ProfilesFolder
from zeroplan.cli.progress import working
from zeroplan.spec.run import Run

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan trace --model 8b --gpus 64 --link ib --output step.json",
    "zeroplan trace -m 8b -n 8 --strategy zero2 --memory-snapshot step.pickle",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run
def trace(
    asked: Run,
    *,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help="Trace for ui.perfetto.dev or chrome://tracing.",
            rich_help_panel=OUTPUT,
        ),
    ] = "trace.json",
    memory_snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.pickle",
            help="The step's allocations for pytorch.org/memory_viz, too.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    profiles: ProfilesFolder = None,
) -> None:
    """Write one predicted step as a trace: every event on its stream, and the live memory.

    Of several strategies it is the fastest that fits.
    """
    from zeroplan.estimation.choice import choose  # noqa: PLC0415  # not for --help
    from zeroplan.estimation.explain_case import case_of  # noqa: PLC0415
    from zeroplan.estimation.resolve import resolve  # noqa: PLC0415
    from zeroplan.report import traces  # noqa: PLC0415

    folder = Path(profiles) if profiles else None
    with working("writing the step down"):
        chosen = choose(resolve(asked, folder))
        case = case_of(chosen.question, chosen.estimate, folder)
    write_whole(Path(output), traces.chrome_trace(case), "--output")
    if memory_snapshot is not None:
        pickled = traces.memory_snapshot(case)
        write_by(Path(memory_snapshot), lambda part: part.write_bytes(pickled), "--memory-snapshot")
    sys.stderr.write(f"{chosen.estimate.strategy}, {chosen.why}. {traces.NOTE}\n")
