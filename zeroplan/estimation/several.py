"""Several values of a key at once: every combination answered, laid side by side."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, Final

from zeroplan import __version__
from zeroplan.errors import SpecError, UsageError
from zeroplan.estimation.record import SCHEMA_VERSION, Estimate, StrategyEstimate
from zeroplan.records import dataclass
from zeroplan.rows import csv_text, html, leaves, plain
from zeroplan.spec.hints import spelled
from zeroplan.spec.reading import read_run
from zeroplan.spec.run import Run

__all__ = [
    "MOST",
    "Answered",
    "Comparison",
    "Refused",
    "compare",
    "csv_of",
    "tokens_per_second",
]

MOST: Final = 200
"""Combinations that anybody reads side by side."""

Values = tuple[tuple[str, str], ...]
"""What one combination sets: dotted keys with their values, as files and flags spell them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to one combination."""

    values: Values
    answer: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A combination that cannot be, and why."""

    values: Values
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Every combination side by side."""

    varied: tuple[tuple[str, tuple[str, ...]], ...]
    """The keys that vary, each with its values, in the order of a spec file."""
    answers: tuple[Answered, ...]
    refused: tuple[Refused, ...]

    @property
    def fits(self) -> bool:
        """Whether at least one combination fits."""
        return any(each.answer.fits for each in self.answers)

    def rows(self, *, best: bool = False) -> Iterator[tuple[Answered, StrategyEstimate]]:
        """Yield what matters of each combination: what fits, or else what is nearest to it.

        Parameters
        ----------
        best
            Whether to leave out all but the fastest that fits.
        """
        for each in self.answers:
            answer = each.answer
            fitting = [found for found in answer.estimates if found.fits]
            if best and answer.fastest is not None:
                fitting = [answer.fastest]
            nearest = max(answer.estimates, key=lambda found: found.memory.headroom_bytes or 0)
            yield from ((each, found) for found in fitting or [nearest])

    def best(
        self, of: Callable[[Answered, StrategyEstimate], float]
    ) -> tuple[Answered, StrategyEstimate] | None:
        """Return what fits and has most of something, the first of equals; real links go first."""
        fitting = [(each, found) for each, found in self.rows() if found.fits]
        real = [row for row in fitting if not row[0].answer.hypothetical]
        return max(real or fitting, key=lambda row: of(*row), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, in the order of the JSON."""
        best = self.best(tokens_per_second)
        return {
            "schema_version": SCHEMA_VERSION,
            "zeroplan_version": __version__,
            "varied": {key: list(values) for key, values in self.varied},
            "best": best and {"values": dict(best[0].values), "strategy": best[1].strategy},
            "answers": [
                {"values": dict(each.values), **each.answer.to_dict()} for each in self.answers
            ],
            "refused": [{"values": dict(each.values), "why": each.why} for each in self.refused],
        }

    def to_json(self) -> str:
        """Return the comparison as one JSON document; a figure that is not a number is a bug."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def _repr_html_(self) -> str:
        from zeroplan.estimation.several_tables import tables  # noqa: PLC0415  # a cycle

        return "".join(map(html, tables(self)))


def csv_of(answers: Iterable[Answered]) -> str:
    """Return one line per combination and strategy, in SI base units."""
    lines = [
        {**dict(each.values), **dict(leaves(plain(found)))}
        for each in answers
        for found in each.answer.estimates
    ]
    return csv_text(lines)


def tokens_per_second(each: Answered, found: StrategyEstimate) -> float:
    """Return what all GPUs together do. [tokens/s]"""
    return (found.time.tokens_per_second_per_gpu or 0.0) * each.answer.inputs.cluster.gpus


def compare(
    values: Mapping[str, object],
    varied: Mapping[str, list[object]],
    answer: Callable[[Run], Estimate],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Answer every combination of the values of keys.

    Parameters
    ----------
    values
        Checked values of what does not vary, by dotted key.
    varied
        Checked values of what does.
    answer
        Answers one of them.
    progress
        Told how many combinations of how many are answered.

    Raises
    ------
    UsageError
        There are more combinations than anybody reads.
    SpecError
        A value is wrong in every combination.
    """
    count = prod(map(len, varied.values()))
    if count > MOST:
        raise UsageError(
            f"{count:,} combinations: at most {MOST} are laid side by side. Name fewer values, or "
            "let `zeroplan plan` search."
        )
    answers, refused = [], []
    faults: list[SpecError] = []
    for done, combination in enumerate(product(*varied.values()), 1):
        changed = dict(zip(varied, combination, strict=True))
        named = tuple((key, spelled(value)) for key, value in changed.items())
        try:
            answers.append(Answered(values=named, answer=answer(read_run(values, changed))))
        except SpecError as error:
            refused.append(Refused(values=named, why=str(error)))
            faults.append(error)
        if progress is not None:
            progress(done, count)
    heard = {pair for each in answers for pair in each.values}
    for each, fault in zip(refused, faults, strict=True):
        if any(pair not in heard for pair in each.values):
            raise fault
    listed = tuple((key, tuple(map(spelled, several))) for key, several in varied.items())
    return Comparison(varied=listed, answers=tuple(answers), refused=tuple(refused))
