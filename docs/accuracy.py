"""Fill the tables of docs/accuracy.md from tables of measurements.

    python docs/accuracy.py RUNS.csv COLLECTIVES.csv

The measurements are other people's and stay where they were published; the page names each source.
An excerpt with citations is in tests/published, and its table is filled from there.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from other_tools import RECORD, refreshed
from roofline import roofline_seconds
from tables import filled, percent, table

from zeroplan.backtesting import Backtest, backtest, backtest_collectives
from zeroplan.backtesting.choosing import Choice, choices
from zeroplan.backtesting.holdout import START, Constants, Run, fit, held_out, informs, runs_of
from zeroplan.backtesting.ordering import Pair, pairs
from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.record import Score, Summary, summarise
from zeroplan.backtesting.runs import MEMORY
from zeroplan.backtesting.table import read_table
from zeroplan.estimation.answer import answer
from zeroplan.hardware import load_catalogue

PAGE: Final = Path(__file__).parent / "accuracy.md"
EXCERPT: Final = Path(__file__).parents[1] / "tests" / "published" / "training_runs.csv"
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
CHOSEN: Final = ("source", "groups", "within a tenth", "out of memory", "least of the best [%]")
FAST: Final = 0.9
"""Share of the best measured rate from which a choice is a good one. [1]"""
MISS: Final = 0.10
"""Errors beyond this are listed one by one."""


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


def measured_links() -> Iterator[tuple[object, ...]]:
    """Write what `zeroplan calibrate` found on points that it left out."""
    catalogue = load_catalogue()
    for link in catalogue.link_ids():
        fit_of_link = catalogue.link(link).fit
        if fit_of_link is not None:
            errors = (
                fit_of_link.median_error_large,
                fit_of_link.held_out_error_large,
                fit_of_link.held_out_error_medium,
                fit_of_link.held_out_error_small,
            )
            figures = ("" if error is None else percent(error) for error in errors)
            left_out = fit_of_link.held_out or "nothing: too little is left"
            yield link, fit_of_link.points, *figures, left_out


def steps(runs: list[Run], scores: list[Score], shipped: Backtest) -> Iterator[tuple[object, ...]]:
    """Write the errors of every source, held out, as shipped and by the roofline."""
    stated = {run.cells.id for run in runs if run.cells.text("fully_stated") == "yes"}
    known = {each.id: each for each in shipped.rows if each.metric == "step_seconds"}
    simple = {run.cells.id: roofline_seconds(run) / run.measured - 1 for run in runs}
    for source in dict.fromkeys(score.source_id for score in scores):
        own = [score for score in scores if score.source_id == source]
        full = [abs(score.error_fraction) for score in own if score.id in stated]
        widths = [((s.high or 0) - (s.low or 0)) / 2 / s.predicted for s in own]
        (row,) = by_group([summarise(own)])
        yield (
            *row[:3],
            row[3],
            percent(median(full)) if full else "",
            *row[4:],
            percent(median(widths)),
            percent(median(abs(known[score.id].error_fraction) for score in own)),
            percent(median(abs(simple[score.id]) for score in own)),
        )


def overall(rows: list[tuple[object, ...]], scores: list[Score]) -> tuple[object, ...]:
    """Write the line below the sources: medians over them, shares over all rows."""

    def over(place: int) -> str:
        values = [float(str(row[place])) for row in rows if row[place] != ""]
        return f"{median(values):.1f}"

    inside = sum(bool(score.inside_band) for score in scores) / len(scores)
    widths = [((s.high or 0) - (s.low or 0)) / 2 / s.predicted for s in scores]
    medians = (over(3), over(4), over(5), percent(inside), percent(median(widths)))
    return "all", len(scores), "", *medians, over(8), over(9)


def constants(found: dict[str, Constants]) -> Iterator[tuple[object, ...]]:
    """Write what was fitted without each source."""
    for source, fitted in found.items():
        yield source, *(f"{value:.3f}" for value in fitted.values())


def orders(found: Sequence[Pair], source_of: dict[str, str]) -> Iterator[tuple[object, ...]]:
    """Write the pairs of each source and how many come out in the measured order."""
    for source in dict.fromkeys(source_of[pair.faster] for pair in found):
        own = [pair for pair in found if source_of[pair.faster] == source]
        yield source, len(own), percent(sum(pair.in_order for pair in own) / len(own))
    yield "all", len(found), percent(sum(pair.in_order for pair in found) / len(found))


def chosen(found: Sequence[Choice]) -> Iterator[tuple[object, ...]]:
    """Write the groups of each source and how many of the choices were measured to be fast."""
    for source in (*dict.fromkeys(each.source_id for each in found), "all"):
        own = [each for each in found if source in (each.source_id, "all")]
        fast = sum(each.of_best >= FAST for each in own)
        least = percent(min(each.of_best for each in own))
        yield source, len(own), fast, sum(each.out_of_memory for each in own), least


def step_tables(path: Path, shipped: Backtest) -> dict[str, str]:
    """Return the tables of step times."""
    runs, fitted = list(runs_of(path)), dict[str, Constants]()
    scores = list(held_out(runs, fitted.__setitem__))
    fitted["none"] = fit(run for run in runs if informs(run))
    cells = {run.cells.id: run.cells for run in runs}
    core = [each for each in shipped.rows if each.id in cells]
    found = list(pairs(core, cells))
    rows = list(steps(runs, scores, shipped))
    heads = (
        "source",
        "rows",
        "median [%]",
        "median of size [%]",
        "fully stated [%]",
        "p90 [%]",
        "inside band [%]",
        "half-width [%]",
        "as shipped [%]",
        "roofline [%]",
    )
    return {
        "steps": table(heads, [*rows, overall(rows, scores)]),
        "fits": table(("without", *START), constants(fitted)),
        "orders": table(
            ("source", "pairs", "in order [%]"),
            orders(found, {name: row.text("source_id") for name, row in cells.items()}),
        ),
    }


def excerpt() -> str:
    """Return the table of the rows that are cited one by one; a test compares it with today's."""
    rows = (
        (score.id, f"{score.measured:.4g}", f"{score.predicted:.4g}")
        for score in backtest(EXCERPT).rows
    )
    return table(("row", "measured [s]", "predicted [s]"), rows)


def tables(runs: Path, collectives: Path) -> dict[str, str]:
    """Return the page's tables by name."""
    found, calls = backtest(runs), backtest_collectives(collectives)
    peaks = [each for each in found.summary if each.metric == "peak_bytes"]
    scores = [each for each in found.rows if each.metric == "peak_bytes"]
    errors = "rows", "median [%]", "median of size [%]", "p90 [%]", "inside band [%]"
    losses = tuple(f"{loss} [%]" for loss in LOSSES)
    return {
        "peaks": table(("source", *errors), by_group(peaks)),
        "misses": table(("row", "kind", "measured [GiB]", *losses), misses(scores, runs)),
        **step_tables(runs, found),
        "choices": table(CHOSEN, chosen(list(choices(runs)))),
        "excerpt": excerpt(),
        "held_out": table(HELD_OUT, measured_links()),
        "calls": table((*calls.summary[0].group, *errors), by_group(calls.summary)),
    }


def main() -> None:
    """Rewrite the page; without tables of measurements only the excerpt."""
    given = [Path(argument) for argument in sys.argv[1:]]
    made = tables(*given) if given else {"excerpt": excerpt()}
    page = filled(PAGE.read_text(encoding="utf-8"), made)
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(refreshed(page, record), encoding="utf-8")


if __name__ == "__main__":
    main()
