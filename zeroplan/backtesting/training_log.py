"""One training log: its median step beside what `estimate` says of the same run."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, get_args

from zeroplan.backtesting.log_words import memory_words, step_words, token_words, unread_words
from zeroplan.backtesting.logs import Kind, Log, Reading, read_log
from zeroplan.backtesting.record import Backtest, Score
from zeroplan.backtesting.row import COLUMNS, losses, run_cells
from zeroplan.backtesting.runs import scores
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.errors import SpecError
from zeroplan.estimation.resolve import resolve
from zeroplan.records import dataclass
from zeroplan.rows import Cell, Column, Table, html, significant
from zeroplan.spec.run import Run
from zeroplan.units import GIB

__all__ = ["LogBacktest", "backtest_log"]

WARM_UP: Final = 10
"""Steps that are left out: they allocate, autotune, compile, fill the loader's queues. [count]"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogBacktest:
    """A log laid beside its prediction, and as a row of the table of runs."""

    result: Backtest
    row: dict[str, str]
    """Cells by column; what is left out is blank."""
    remarks: tuple[str, ...]
    """What was read, left out and not understood, in words."""

    def to_csv(self, table: Path | None = None) -> str:
        """Return a table with the row: a new one, or one that is there, where it replaces its like.

        Raises
        ------
        SpecError
            What is there is no table of runs.

        """
        there = read_table(table, ("id", "strategy")) if table and table.exists() else []
        kept = [cells.row for cells in there if cells.row["id"] != self.row["id"]]
        columns = dict.fromkeys((*COLUMNS, *(name for row in kept for name in row if name)))
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(columns), restval="", extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows((*kept, self.row))
        return text.getvalue()

    def to_table(self) -> Table:
        """Return what was measured beside what is predicted."""
        return Table(
            title=f"Predicted against measured: {self.row['id']}",
            columns=(
                Column(name="figure", is_text=True),
                *(Column(name=name) for name in ("measured", "predicted")),
                Column(name="error", unit="%"),
                Column(name="band", is_text=True),
            ),
            rows=tuple(self._cells(each) for each in self.result.rows),
        )

    def __repr__(self) -> str:
        return f"LogBacktest({self.row['id']}: {self.result!r})"

    def _repr_html_(self) -> str:
        return html(self.to_table())

    def _cells(self, each: Score) -> tuple[Cell, ...]:
        seconds = each.metric == "step_seconds"
        name = "step" if seconds else f"peak, {self.row['memory_kind']}"
        scale, unit = (1, "s") if seconds else (GIB, "GiB")
        low, measured, predicted, high = (
            significant(value / scale, 4) if value is not None else ""
            for value in (each.low, each.measured, each.predicted, each.high)
        )
        band = f"{low} to {high} {unit}" if low and high else None
        error = each.error_fraction * 100
        return name, f"{measured} {unit}", f"{predicted} {unit}", error, band


def backtest_log(path: str | Path, run: Run, *, profiles: Path | None = None) -> LogBacktest:
    """Lay the median step and the peak of a training log beside their prediction.

    Parameters
    ----------
    path
        The log of a torchtitan, HF Trainer, DeepSpeed or Composer run.
    run
        What ran; it names one strategy.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    SpecError
        There is no figure in the log, or the run is not the log's.

    """
    if run.sharding.strategy is None:
        raise SpecError("sharding.strategy is open, and a log is of one: name it with --strategy.")
    log = read_log(Path(path))
    question = resolve(run, profiles)
    _verify(log, question.run, path)
    steady, left_out = _steady(log.readings)
    seconds = [_seconds(log, each, question.run) for each in steady if each.speed]
    kind, peak = _peak(steady)
    row = {
        "id": str(path),
        "source_id": log.trainer,
        **run_cells(question, run.sharding.strategy),
        **_measured(seconds, question.run),
        **({"peak_mem_gib": repr(peak / GIB), "memory_kind": kind} if kind else {}),
    }
    laid = scores(Cells(row, line=0), profiles, question)
    lost = losses(row, question, profiles)
    return LogBacktest(
        result=Backtest(rows=tuple(laid), skipped=()),
        row=row,
        remarks=(
            *step_words(log, seconds, left_out),
            *memory_words(kind, peak, steady),
            *log.remarks,
            *token_words(log, _tokens(question.run) * question.run.cluster.gpus),
            *unread_words(log.unread),
            *((lost,) if lost else ()),
        ),
    )


def _verify(log: Log, run: Run, path: str | Path) -> None:
    """Refuse a run that is not the log's."""
    training = run.training
    told = log.micro_batch_size
    if told is not None and told != training.micro_batch_size:
        raise SpecError(
            f"{path}: train_batch_size is {told}, and training.micro_batch_size "
            f"{training.micro_batch_size}: give the run's own with --micro-batch-size."
        )
    if log.micro_steps and training.gradient_accumulation_steps > 1:
        raise SpecError(
            f"{path}: this version of DeepSpeed does not say whether SamplesPerSec is of steps or "
            "of micro-steps, and the run accumulates gradients: it cannot be compared."
        )


def _steady(readings: Sequence[Reading]) -> tuple[list[Reading], str]:
    """Return the readings after the first steps, of a short log its second half; say which.

    A reading is told of the step that it ends with. Where one is all there is, it stays.
    """
    start = min(each.step for each in readings)
    for first in (start + WARM_UP, *_middle(readings)):
        steady = [each for each in readings if each.step >= first]
        if any(each.speed for each in steady):
            return steady, f"what ends before step {first:,} is left out"
    return list(readings), "nothing is left out"


def _middle(readings: Sequence[Reading]) -> tuple[int, ...]:
    """Return the step at which the second half of what is timed begins, if there are two."""
    timed = sorted(each.step for each in readings if each.speed)
    return (timed[len(timed) // 2],) if len(timed) > 1 else ()


def _seconds(log: Log, reading: Reading, run: Run) -> float:
    """Return the time of one optimizer step. [s]"""
    speed, gpus = reading.speed or 0.0, run.cluster.gpus
    per_step = {
        "tokens_per_second_per_gpu": _tokens(run),
        "tokens_per_second": _tokens(run) * gpus,
        "samples_per_second": _sequences(run) * gpus,
    }
    return speed if log.measure == "step_seconds" else per_step[log.measure] / speed


def _sequences(run: Run) -> int:
    """Return what one GPU sees in a step. [sequences]"""
    return run.training.micro_batch_size * run.training.gradient_accumulation_steps


def _tokens(run: Run) -> int:
    """Return the same in tokens, of a run whose sequence length is filled in."""
    return _sequences(run) * (run.training.sequence_length or 0)


def _measured(seconds: Sequence[float], run: Run) -> dict[str, str]:
    """Return the cells of a step's time; the table compares through the tokens per second."""
    if not seconds:
        return {}
    step = median(seconds)
    return {"tokens_per_s_per_gpu": repr(_tokens(run) / step), "step_time_s": repr(step)}


def _peak(readings: Sequence[Reading]) -> tuple[Kind | None, float]:
    """Return the highest peak and what it counts: of several kinds the one that counts least."""
    for kind in get_args(Kind):
        peaks = [each.peaks[kind] for each in readings if kind in each.peaks]
        if peaks:
            return kind, max(peaks)
    return None, 0.0
