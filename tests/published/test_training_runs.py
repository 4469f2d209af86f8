"""Step times of 109 published runs, each row with where it was published.

The four constants that are fitted to runs (`zeroplan.backtesting.holdout`) are fitted anew without
the source that is predicted.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from zeroplan.backtesting import backtest
from zeroplan.backtesting.choosing import choices
from zeroplan.backtesting.holdout import START, Constants, fit, held_out, informs, runs_of
from zeroplan.backtesting.ordering import pairs
from zeroplan.backtesting.record import Backtest, Score
from zeroplan.backtesting.table import read_table
from zeroplan.hardware import load_catalogue

TABLE = Path(__file__).with_name("training_runs.csv")
CELLS = {row.id: row for row in read_table(TABLE, ("strategy",))}

pytestmark = pytest.mark.published


@cache
def _found() -> Backtest:
    return backtest(TABLE)


@cache
def _held_out() -> tuple[tuple[Score, ...], dict[str, Constants]]:
    constants: dict[str, Constants] = {}
    scores = tuple(held_out(runs_of(TABLE), constants.__setitem__))
    return scores, constants


def test_every_row_is_predicted_and_cited() -> None:
    assert _found().skipped == ()
    assert [row.id for row in CELLS.values() if not row.text("citation")] == []


def test_the_median_source_is_within_ten_percent_without_having_been_fitted() -> None:
    """Within ten where kernel, compilation and link are told, within fifteen where they are not."""
    scores, _ = _held_out()
    stated = [s for s in scores if CELLS[s.id].text("fully_stated") == "yes"]
    assert len(_medians(scores)) == 10
    assert median(_medians(stated).values()) < 0.10
    assert median(_medians(scores).values()) < 0.15


def test_no_source_of_ten_rows_is_off_by_a_fifth() -> None:
    scores, _ = _held_out()
    rows = [score.source_id for score in scores]
    assert {s: e for s, e in _medians(scores).items() if rows.count(s) >= 10 and e > 0.2} == {}


def test_what_was_measured_to_be_faster_is_predicted_to_be() -> None:
    found = list(pairs(_found().rows, CELLS))
    assert len(found) > 100
    assert sum(pair.in_order for pair in found) >= 0.9 * len(found)


def test_what_is_predicted_to_be_fastest_was_measured_to_be_fast() -> None:
    """Within a tenth of the best of its group, and never a run that was out of memory."""
    found = list(choices(TABLE))
    assert len(found) >= 20
    assert sum(each.of_best >= 0.9 for each in found) >= 0.8 * len(found)
    assert [each.chosen for each in found if each.out_of_memory] == []


@pytest.mark.parametrize("knob", ["gpus", "micro_batch_per_gpu", "checkpointing", "compiled"])
def test_each_knob_turns_the_right_way(knob: str) -> None:
    found = [pair for pair in pairs(_found().rows, CELLS) if knob in pair.differ_in]
    assert len(found) >= 2
    assert sum(pair.in_order for pair in found) >= 0.9 * len(found)


def test_held_out_runs_lie_in_a_band_that_is_narrow_enough_to_be_of_use() -> None:
    """Eight in ten should; and the band reaches no further than a quarter, in the median."""
    scores, _ = _held_out()
    widths = [((s.high or 0) - (s.low or 0)) / 2 / s.predicted for s in scores]
    assert 0.75 <= sum(bool(score.inside_band) for score in scores) / len(scores) <= 0.9
    assert median(widths) <= 0.25


def test_constants_do_not_hang_on_one_source() -> None:
    _, constants = _held_out()
    for name in START:
        values = [each[name] for each in constants.values()]
        assert max(values) - min(values) < 0.2 * median(values)


def test_the_shipped_constants_are_those_that_the_runs_ask_for() -> None:
    """Of this excerpt; the whole tables are named in the profiles' source."""
    constants = fit(run for run in runs_of(TABLE) if informs(run))
    gpus = {"ampere": "a100-sxm4-80gb", "hopper": "h100-sxm5-80gb"}
    for name, value in constants.items():
        key, _, family = name.partition(".")
        for gpu_id in [gpus[family]] if family else gpus.values():
            shipped = getattr(load_catalogue(None).gpu(gpu_id), key).value
            assert shipped == pytest.approx(value, rel=0.15), (name, gpu_id)


def test_the_page_of_accuracy_shows_what_is_predicted_today() -> None:
    """`python docs/accuracy.py` fills its table anew; two in a hundred are let pass."""
    page = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    block = page.partition("<!-- excerpt -->\n")[2].partition("<!-- end -->")[0]
    lines = [line.strip("| ").split(" | ") for line in block.splitlines()[2:]]
    shown = {name: float(predicted) for name, _, predicted in lines}
    assert shown == pytest.approx({s.id: s.predicted for s in _found().rows}, rel=0.02)


def _medians(scores: Iterable[Score]) -> dict[str, float]:
    errors: dict[str, list[float]] = {}
    for score in scores:
        errors.setdefault(score.source_id, []).append(abs(score.error_fraction))
    return {source: median(each) for source, each in errors.items()}
