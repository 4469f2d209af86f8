"""`zeroplan backtest`: predictions against a table of measurements."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.cli.files import write_whole
from zeroplan.cli.light import LightCommand
from zeroplan.cli.options import OUTSIDE, AsJson, ProfilesFolder
from zeroplan.cli.progress import counted
from zeroplan.errors import SpecError, UsageError

if TYPE_CHECKING:
    from zeroplan.backtesting import Backtest

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan backtest runs.csv",
    "zeroplan backtest runs.csv --tolerance 0.1 --output errors.csv",
    "zeroplan backtest runs.csv --plot parity.png --output parity.csv",
    "zeroplan backtest --collectives nccl.csv --json",
)

app = typer.Typer(add_completion=False)


@app.command(cls=LightCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
def backtest(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE.csv", help="One measured run, or collective, a row."),
    ] = None,
    *,
    collectives: Annotated[
        bool, typer.Option("--collectives", help="The rows are collectives, as of nccl-tests.")
    ] = False,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="X",
            help="Largest overall error that is accepted, 0.1 for 10 %; beyond it exit with 5.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT.csv", help="Write every prediction there."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="OUT.png", help="Draw predicted over measured; svg and pdf work too."),
    ] = None,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Predict a table of measured runs, or collectives, and show how far off the predictions are.

    A run needs the columns strategy, gpus, seq_len and micro_batch_per_gpu,
    the model's n_layers, hidden, n_heads, ffn and vocab, and step_time_s,
    tokens_per_s_per_gpu or peak_mem_gib with memory_kind.
    docs/backtest.md has them all.
    """
    if file is None:
        raise UsageError("no table: name a CSV file of measured runs or collectives.")
    accepted = None if tolerance is None else _fraction(tolerance)
    result = _result(Path(file), Path(profiles) if profiles else None, collectives, as_json)
    if not result.rows:
        first = result.skipped[0] if result.skipped else None
        why = f"the first, {first.id}: {first.why}" if first else "it has no rows"
        raise SpecError(f"{file}: no row can be predicted; {why}")
    if output is not None:
        write_whole(Path(output), result.to_csv(), "--output")
    if plot is not None:
        _draw(result, Path(plot))
    if as_json:
        sys.stdout.write(f"{result.to_json()}\n")
    else:
        from zeroplan.report.backtest import backtest_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page  # noqa: PLC0415

        sys.stdout.write(backtest_text(result, page()))
    if accepted is not None and not result.within(accepted):
        from zeroplan.report.backtest import overall_words  # noqa: PLC0415

        sys.stderr.write(
            f"outside the tolerance of {100 * accepted:.3g} %: {overall_words(result)}\n"
        )
        raise typer.Exit(OUTSIDE)


def _result(file: Path, profiles: Path | None, collectives: bool, quiet: bool) -> "Backtest":
    from zeroplan.backtesting import backtest as runs  # noqa: PLC0415  # not for --help
    from zeroplan.backtesting import backtest_collectives  # noqa: PLC0415

    if collectives:
        return backtest_collectives(file, profiles=profiles)
    shown = not quiet
    return runs(file, profiles=profiles, progress=counted("rows") if shown else None)


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise UsageError(f"--tolerance {text!r}: write a fraction of 0 or more, 0.1 for 10 %.")
    return value


def _draw(result: "Backtest", path: Path) -> None:
    """Draw a chart and tell in words what it shows."""
    from zeroplan.cli.pictures import suffix_of, write_picture  # noqa: PLC0415
    from zeroplan.report.charts.parity import KIND, data_parity  # noqa: PLC0415

    suffix_of(path, "--plot")
    write_picture(KIND, data_parity(result), path, "--plot")
