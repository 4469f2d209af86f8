"""`zeroplan backtest`: predictions against a table of measurements, or a training log."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.cli.files import write_whole
from zeroplan.cli.flags import SpecCommand, takes_run_or_none
from zeroplan.cli.options import OUTSIDE, AsJson, ProfilesFolder
from zeroplan.cli.progress import working
from zeroplan.errors import SpecError, UsageError
from zeroplan.spec.run import Run

if TYPE_CHECKING:
    from zeroplan.backtesting import Backtest, LogBacktest

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan backtest runs.csv",
    "zeroplan backtest runs.csv --tolerance 0.1 --output errors.csv",
    "zeroplan backtest runs.csv --plot parity.png --output parity.csv",
    "zeroplan backtest --collectives nccl.csv --json",
    "zeroplan backtest train.log --spec run.toml --output rows.csv",
    "zeroplan backtest trainer_state.json -m 8b -n 8 -b 4 --strategy fsdp2 --output rows.csv",
)

LOGS: Final = (".log", ".txt", ".out", ".err", ".json")
"""How a file's name ends that is more likely a log than a table."""

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run_or_none
def backtest(
    run: Run | None,
    *,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A table (.csv) with one measured run, or collective, a row; or the training log of "
            "the run that the flags describe.",
        ),
    ] = None,
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
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.csv",
            help="Write every prediction there; of a log, add its row.",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="OUT.png", help="Draw predicted over measured; svg and pdf work too."),
    ] = None,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Predict measured runs, or collectives, and show how far off the predictions are.

    A training log is the output of torchtitan, DeepSpeed or Composer
    (llm-foundry), or the HF Trainer's trainer_state.json. Say what ran with a
    spec, a trainer's file or flags.

    A table needs no flags. A run needs the columns strategy, gpus, seq_len and
    micro_batch_per_gpu, the model's n_layers, hidden, n_heads, ffn and vocab,
    and step_time_s, tokens_per_s_per_gpu or peak_mem_gib with memory_kind.
    docs/backtest.md has them all.
    """
    if file is None:
        raise UsageError("nothing to read: name a CSV of measured runs, or a training log.")
    accepted = None if tolerance is None else _fraction(tolerance)
    own = Path(profiles) if profiles else None
    log: LogBacktest | None = None
    if run is None:
        result = _result(Path(file), own, collectives, as_json)
    elif collectives or Path(file).suffix == ".csv":
        raise UsageError(f"{file}: a table says itself what ran; flags and --spec go with a log.")
    else:
        log = _of_log(file, run, own, quiet=as_json)
        result = log.result
    if output is not None:
        text = log.to_csv(Path(output)) if log else result.to_csv()
        write_whole(Path(output), text, "--output")
    if plot is not None:
        _draw(result, Path(plot))
    if as_json:
        sys.stdout.write(f"{result.to_json()}\n")
    else:
        from zeroplan.report.backtest import backtest_text  # noqa: PLC0415  # not for --json
        from zeroplan.report.terminal import page, table_text  # noqa: PLC0415

        on = page()
        sys.stdout.write(table_text(log.to_table(), on) if log else backtest_text(result, on))
    if accepted is not None and not result.within(accepted):
        from zeroplan.report.backtest import overall_words  # noqa: PLC0415

        sys.stderr.write(
            f"outside the tolerance of {100 * accepted:.3g} %: {overall_words(result)}\n"
        )
        raise typer.Exit(OUTSIDE)


def _result(file: Path, profiles: Path | None, collectives: bool, quiet: bool) -> "Backtest":
    """Predict a table of which something can be predicted."""
    from zeroplan.backtesting import backtest as runs  # noqa: PLC0415  # not for --help
    from zeroplan.backtesting import backtest_collectives  # noqa: PLC0415

    if collectives:
        with working("pricing collectives", quiet=quiet):
            result = backtest_collectives(file, profiles=profiles)
    elif file.suffix in LOGS and file.is_file():
        raise UsageError(
            f"{file}: a log does not say what ran: describe the run with --spec run.toml, a "
            "trainer's file, or flags such as --model, --gpus and --strategy."
        )
    else:
        with working("predicting", "rows", quiet=quiet) as progress:
            result = runs(file, profiles=profiles, progress=progress)
    if not result.rows:
        first = result.skipped[0] if result.skipped else None
        why = f"the first, {first.id}: {first.why}" if first else "it has no rows"
        raise SpecError(f"{file}: no row can be predicted; {why}")
    return result


def _of_log(file: str, run: Run, profiles: Path | None, *, quiet: bool) -> "LogBacktest":
    """Predict the run of a log and tell what was read of it."""
    from zeroplan.backtesting import backtest_log  # noqa: PLC0415  # not for --help

    with working("predicting", quiet=quiet):
        laid = backtest_log(file, run, profiles=profiles)
    for remark in laid.remarks:
        sys.stderr.write(f"{file}: {remark}.\n")
    return laid


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
