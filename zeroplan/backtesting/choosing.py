"""Whether the way to train that is predicted to be fastest was measured to be fast."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.runs import step_seconds
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.records import dataclass

__all__ = ["Choice", "choices"]

SAME: Final = (
    "source_id",
    "model_name",
    "n_layers",
    "hidden",
    "seq_len",
    "gpu",
    "gpus",
    "fabric",
    "compute_dtype",
    "fp8",
)
"""Columns in which runs agree among which one is chosen: the rest is how to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is predicted to be the fastest of a group of runs that fits, beside the fastest."""

    source_id: str
    rows: int
    chosen: str
    """Its id."""
    out_of_memory: bool
    """Whether it was published as such."""
    of_best: float
    """Its measured tokens per second over the best ones of the group. [1]"""


def choices(path: str | Path, *, profiles: Path | None = None) -> Iterator[Choice]:
    """Choose among the runs of a table that differ in how one model is trained on some GPUs.

    Raises
    ------
    SpecError
        The file is no such table; rows that cannot be predicted are left out.

    """
    groups: dict[tuple[str, ...], list[_Run]] = {}
    for cells in read_table(Path(path), ("strategy",)):
        for run in _run(cells, profiles):
            groups.setdefault(tuple(cells.text(column) for column in SAME), []).append(run)
    yield from (_chosen(group) for group in groups.values() if len(group) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    cells: Cells
    rate: float
    """Measured; 0 where memory did not last. [tokens/s]"""
    predicted: StrategyEstimate

    @property
    def out_of_memory(self) -> bool:
        return self.cells.text("outcome").lower() == "oom"


def _run(cells: Cells, profiles: Path | None) -> Iterator[_Run]:
    """Yield a row's run where it was measured and can be predicted."""
    try:
        out = cells.text("outcome").lower() == "oom"
        seconds = None if out else step_seconds(cells)
        if out or seconds:
            (predicted,) = answer(question_of_row(cells, profiles)).estimates
            yield _Run(cells=cells, rate=_rate(cells, seconds), predicted=predicted)
    except SpecError:
        return


def _rate(cells: Cells, seconds: float | None) -> float:
    if not seconds:
        return 0.0
    steps = cells.whole("grad_accum") if cells.text("grad_accum") else 1
    return cells.whole("seq_len") * cells.whole("micro_batch_per_gpu") * steps / seconds


def _chosen(group: list[_Run]) -> Choice:
    fitting = [run for run in group if run.predicted.fits] or group
    chosen = max(fitting, key=lambda run: run.predicted.time.tokens_per_second_per_gpu or 0.0)
    return Choice(
        source_id=chosen.cells.text("source_id"),
        rows=len(group),
        chosen=chosen.cells.id,
        out_of_memory=chosen.out_of_memory,
        of_best=chosen.rate / max(run.rate for run in group),
    )
