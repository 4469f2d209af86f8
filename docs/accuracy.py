"""Fill the tables of docs/accuracy.md from tables of measurements.

    python docs/accuracy.py RUNS.csv COLLECTIVES.csv

The measurements are other people's and stay where they were published; the page names each source.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from zeroplan.backtesting import backtest, backtest_collectives
from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.record import Score, Summary
from zeroplan.backtesting.runs import MEMORY
from zeroplan.backtesting.table import read_table
from zeroplan.estimation.answer import answer
from zeroplan.hardware import load_catalogue

PAGE: Final = Path(__file__).parent / "accuracy.md"
BLOCK: Final = re.compile(r"<!-- (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
LOSSES: Final = ("fp32-logits", "model-dtype-logits", "compiled", "fused-linear")
HELD_OUT: Final = (
    "link",
    "points",
    "fitted, > 16 MiB [%]",
    "held out, > 16 MiB [%]",
    "1-16 MiB [%]",
    "<= 1 MiB [%]",
    "held out",
)
MISS: Final = 0.10
"""Errors beyond this are listed one by one."""


def table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table in markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def percent(fraction: float, *, sign: bool = False) -> str:
    """Return a fraction in percent."""
    return f"{100 * fraction:{'+' if sign else ''}.1f}"


def by_group(summaries: Iterable[Summary]) -> Iterator[tuple[object, ...]]:
    """Write each group's errors as a row."""
    for each in summaries:
        inside = each.share_inside_band
        yield (
            *each.group.values(),
            each.rows,
            percent(each.median_error, sign=True),
            percent(each.median_abs_error),
            percent(each.p90_abs_error),
            "" if inside is None else percent(inside),
        )


def misses(scores: Iterable[Score], runs: Path) -> Iterator[tuple[object, ...]]:
    """List the peaks that are far off, with the error under every form of the loss."""
    cells = {row.id: row for row in read_table(runs, ("strategy",))}
    for score in scores:
        if abs(score.error_fraction) <= MISS:
            continue
        row = cells[score.id]
        question, kind = question_of_row(row, None), row.text("memory_kind").lower()
        errors = []
        for loss in LOSSES:
            model = replace(question.run.model, loss=loss)
            other = replace(question, run=replace(question.run, model=model))
            (estimate,) = answer(other).estimates
            predicted = MEMORY[kind](estimate.memory) or 0
            errors.append(percent(predicted / score.measured - 1, sign=True))
        yield score.id, kind, f"{score.measured / 2**30:.1f}", *errors


def held_out() -> Iterator[tuple[object, ...]]:
    """Write what `zeroplan calibrate` found on points that it left out."""
    catalogue = load_catalogue()
    for link in catalogue.link_ids():
        fit = catalogue.link(link).fit
        if fit is not None:
            errors = (
                fit.median_error_large,
                fit.held_out_error_large,
                fit.held_out_error_medium,
                fit.held_out_error_small,
            )
            figures = ("" if error is None else percent(error) for error in errors)
            yield link, fit.points, *figures, fit.held_out or "nothing: too little is left"


def tables(runs: Path, collectives: Path) -> dict[str, str]:
    """Return the page's tables by name."""
    found, calls = backtest(runs), backtest_collectives(collectives)
    peaks = [each for each in found.summary if each.metric == "peak_bytes"]
    steps = [each for each in found.summary if each.metric == "step_seconds"]
    scores = [each for each in found.rows if each.metric == "peak_bytes"]
    errors = "rows", "median [%]", "median of size [%]", "p90 [%]", "inside band [%]"
    losses = tuple(f"{loss} [%]" for loss in LOSSES)
    return {
        "peaks": table(("source", *errors), by_group(peaks)),
        "misses": table(("row", "kind", "measured [GiB]", *losses), misses(scores, runs)),
        "steps": table(("source", *errors), by_group(steps)),
        "held_out": table(HELD_OUT, held_out()),
        "calls": table((*calls.summary[0].group, *errors), by_group(calls.summary)),
    }


def main() -> None:
    """Rewrite the page."""
    runs, collectives = map(Path, sys.argv[1:])
    made = tables(runs, collectives)
    page = PAGE.read_text(encoding="utf-8")

    def block(found: re.Match[str]) -> str:
        return f"<!-- {found['name']} -->\n{made[found['name']]}<!-- end -->"

    PAGE.write_text(BLOCK.sub(block, page), encoding="utf-8")


if __name__ == "__main__":
    main()
