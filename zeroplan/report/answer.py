"""An answer for a person: two tables and what they mean."""

from zeroplan.estimation.record import Estimate
from zeroplan.estimation.tables import tables
from zeroplan.report.terminal import Page, prose, table_text
from zeroplan.report.words import LEGEND, assumptions, defaults, precisions, trained, verdicts
from zeroplan.spec.run import Run

__all__ = ["answer_text"]


def answer_text(answer: Estimate, asked: Run, on: Page, *, wide: bool = False) -> str:
    """Return the tables, what they mean, and everything that was chosen or assumed."""
    sentences = (
        *verdicts(answer), *answer.hypothetical, *trained(answer), LEGEND, *precisions(answer)
    )  # fmt: skip
    parts = [
        *(table_text(table, on) for table in tables(answer, wide=wide)),
        prose(sentences, on),
    ]
    for title, lines in (
        ("Notes", [note for note in answer.notes if note not in answer.hypothetical]),
        ("Defaults chosen", tuple(defaults(answer, asked))),
        ("Assumptions", tuple(assumptions(answer))),
    ):
        if lines:
            parts.append(prose((title, *(f"- {line}" for line in lines)), on))
    return "\n".join(parts)
