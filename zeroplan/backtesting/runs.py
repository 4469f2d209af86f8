"""Training runs: each row's step time and peak memory beside what `estimate` says."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.record import Backtest, Metric, Score, Skip
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer
from zeroplan.estimation.record import Memory
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import load_catalogue
from zeroplan.units import GIB

__all__ = ["Progress", "backtest", "score", "scores", "step_seconds"]

Progress = Callable[[int, int], None]
"""Told the rows done and the rows in all."""

MEMORY: Final[dict[str, Callable[[Memory], int | None]]] = {
    "allocated": lambda memory: memory.peak_allocated_bytes,
    "active": lambda memory: memory.peak_allocated_bytes,
    "reserved": lambda memory: memory.reserved_bytes,
    "device": lambda memory: memory.device_bytes,
}
"""What a measured peak is compared with, by `memory_kind`."""


def backtest(
    path: str | Path, *, profiles: Path | None = None, progress: Progress | None = None
) -> Backtest:
    """Predict every run of a table and lay the predictions beside what was measured.

    Parameters
    ----------
    path
        A CSV with one measured run a row.
    profiles
        Folder whose hardware profiles come before the shipped ones.
    progress
        Called after every row.

    Raises
    ------
    SpecError
        The file is no such table; a row that cannot be predicted is skipped instead.

    """
    load_catalogue(profiles)  # a folder that is not there fails here, not in every row
    table = read_table(Path(path), ("strategy",))
    rows: list[Score] = []
    skipped: list[Skip] = []
    for done, cells in enumerate(table, start=1):
        try:
            rows += scores(cells, profiles)
        except SpecError as error:
            skipped.append(Skip(id=cells.id, why=str(error)))
        if progress is not None:
            progress(done, len(table))
    return Backtest(rows=tuple(rows), skipped=tuple(skipped))


def scores(cells: Cells, profiles: Path | None, question: Question | None = None) -> list[Score]:
    """Predict one row, or the run that it is of; SpecError says why not."""
    if cells.text("outcome").lower() not in ("", "ok"):
        raise SpecError(f"outcome {cells.text('outcome')!r}: nothing was measured")
    seconds, peak = step_seconds(cells), _peak_bytes(cells)
    if seconds is None and peak is None:
        raise SpecError("neither a step time nor a peak of a stated memory_kind was measured")
    (estimate,) = answer(question or question_of_row(cells, profiles)).estimates
    found = []
    if seconds is not None:
        time = estimate.time
        band = (time.low_seconds, time.high_seconds)
        found.append(score(cells, "step_seconds", seconds, time.step_seconds, band))
    if peak is not None:
        predicted = MEMORY[_memory_kind(cells)](estimate.memory)
        found.append(score(cells, "peak_bytes", peak, predicted))
    return found


def score(
    cells: Cells,
    metric: Metric,
    measured: float,
    predicted: float | None,
    band: tuple[float | None, float | None] = (None, None),
) -> Score:
    """Lay a prediction beside its measurement; SpecError where there is no prediction."""
    if predicted is None:
        raise SpecError(f"{metric} is not known in this version")
    source = cells.text("source_id") or "not stated"
    return Score(
        id=cells.id,
        source_id=source,
        group={"source_id": source},
        metric=metric,
        measured=measured,
        predicted=predicted,
        low=band[0],
        high=band[1],
        filled_in=tuple(cells.filled),
    )


def step_seconds(cells: Cells) -> float | None:
    """Return the measured step time, through the tokens per second where these are given. [s]"""
    rate = cells.positive("tokens_per_s_per_gpu")
    if rate is None:
        return cells.positive("step_time_s")
    steps = cells.whole("grad_accum") if cells.text("grad_accum") else 1
    return cells.whole("seq_len") * cells.whole("micro_batch_per_gpu") * steps / rate


def _peak_bytes(cells: Cells) -> float | None:
    """Return the measured peak, None where what it counts is not stated. [B]"""
    kind, peak = _memory_kind(cells), cells.positive("peak_mem_gib")
    if not kind or peak is None:
        return None
    if kind not in MEMORY:
        raise SpecError(f"memory_kind {kind!r} is not one of {', '.join(MEMORY)}")
    return peak * GIB


def _memory_kind(cells: Cells) -> str:
    return cells.text("memory_kind").lower()
