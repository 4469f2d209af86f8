"""Whether what was measured to be faster is also predicted to be."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from zeroplan.backtesting.record import Score
from zeroplan.backtesting.table import Cells
from zeroplan.records import dataclass

__all__ = ["Pair", "pairs"]

SAME: Final = ("source_id", "model_name", "n_layers", "hidden", "seq_len", "gpu")
"""Columns in which the two runs of a pair agree."""

KNOBS: Final = (
    "strategy",
    "gpus",
    "shard_size",
    "micro_batch_per_gpu",
    "checkpointing",
    "compiled",
    "reshard_after_forward",
)
"""Columns in one or more of which they differ."""

LEAST: Final = 0.1
"""Pairs whose rates differ by less are no test: measurements do not repeat better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two runs of one model, by their tokens per second per GPU."""

    faster: str
    """The id of the row that was measured to be faster."""
    slower: str
    measured_ratio: float
    predicted_ratio: float
    differ_in: tuple[str, ...]

    @property
    def in_order(self) -> bool:
        """Whether the faster one is predicted to be faster."""
        return self.predicted_ratio > 1.0


def pairs(scores: Iterable[Score], cells: Mapping[str, Cells]) -> Iterator[Pair]:
    """Yield the pairs of a table that differ by more than a tenth, the faster run first."""
    groups: dict[tuple[str, ...], list[Score]] = {}
    for score in scores:
        if score.metric == "step_seconds":
            key = tuple(cells[score.id].text(column) for column in SAME)
            groups.setdefault(key, []).append(score)
    for group in groups.values():
        for one, other in combinations(group, 2):
            differ = tuple(
                name for name in KNOBS if cells[one.id].text(name) != cells[other.id].text(name)
            )
            if differ:
                yield from _pair(one, other, cells, differ)


def _pair(
    one: Score, other: Score, cells: Mapping[str, Cells], differ: tuple[str, ...]
) -> Iterator[Pair]:
    tokens = _tokens(cells[one.id]) / _tokens(cells[other.id])
    measured = tokens * other.measured / one.measured
    predicted = tokens * other.predicted / one.predicted
    if measured < 1:
        one, other, measured, predicted = other, one, 1 / measured, 1 / predicted
    if measured > 1 + LEAST:
        yield Pair(
            faster=one.id,
            slower=other.id,
            measured_ratio=measured,
            predicted_ratio=predicted,
            differ_in=differ,
        )


def _tokens(row: Cells) -> float:
    """Tokens of a GPU in a step."""
    steps = row.whole("grad_accum") if row.text("grad_accum") else 1
    return row.whole("seq_len") * row.whole("micro_batch_per_gpu") * steps
