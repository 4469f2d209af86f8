"""A backtest sums its errors up by group, and groups count alike."""

import json
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.backtesting.record import Backtest, Score, Skip, summarise

ratios = st.floats(0.01, 100)
"""Predicted over measured."""


def _score(
    ratio: float, source: str = "a", low: float | None = None, high: float | None = None
) -> Score:
    return Score(
        id="r",
        source_id=source,
        group={"source_id": source},
        metric="step_seconds",
        measured=2.0,
        predicted=2.0 * ratio,
        low=low,
        high=high,
        filled_in=("fabric", "shard_size"),
    )


def _backtest(*scores: Score) -> Backtest:
    return Backtest(rows=scores, skipped=(Skip(id="x", why="tp = 2"),))


def test_an_error_is_predicted_over_measured_less_one() -> None:
    assert _score(1.25).error_fraction == pytest.approx(0.25)
    assert _score(0.5).error_fraction == pytest.approx(-0.5)


@given(st.lists(ratios, min_size=1, max_size=30))
def test_the_ninetieth_percentile_lies_between_median_and_largest(errors: list[float]) -> None:
    summary = summarise([_score(ratio) for ratio in errors])
    largest = max(abs(ratio - 1) for ratio in errors)
    assert summary.median_abs_error <= summary.p90_abs_error * (1 + 1e-12) + 1e-12
    assert summary.p90_abs_error <= largest * (1 + 1e-12) + 1e-12
    assert summary.rows == len(errors)


def test_the_ninetieth_percentile_of_eleven_is_the_tenth() -> None:
    assert summarise([_score(1 + each / 10) for each in range(11)]).p90_abs_error == pytest.approx(
        0.9
    )


@given(ratios, ratios, st.integers(1, 20))
def test_a_large_group_counts_no_more_than_a_small_one(one: float, other: float, rows: int) -> None:
    result = _backtest(*(rows * [_score(one)]), _score(other, "b"))
    expected = median([abs(one - 1), abs(other - 1)])
    assert result.overall["step_seconds"] == pytest.approx(expected)


def test_a_tolerance_holds_for_the_overall_figure() -> None:
    result = _backtest(_score(1.1), _score(1.3, "b"))
    assert result.within(0.21)
    assert not result.within(0.19)
    assert not _backtest().within(1.0)


def test_the_share_inside_the_band_counts_measurements_with_a_band() -> None:
    scores = [_score(1.0, low=1.5, high=2.5), _score(1.0, low=2.1, high=2.5), _score(1.0)]
    assert summarise(scores).share_inside_band == 0.5
    assert summarise([_score(1.0)]).share_inside_band is None


def test_a_program_reads_the_keys_of_the_contract() -> None:
    document = json.loads(_backtest(_score(1.5)).to_json())
    assert list(document) == ["rows", "skipped", "summary"]
    assert document["rows"] == [
        {
            "id": "r",
            "source_id": "a",
            "metric": "step_seconds",
            "measured": 2.0,
            "predicted": 3.0,
            "low": None,
            "high": None,
            "error_fraction": 0.5,
            "filled_in": ["fabric", "shard_size"],
        }
    ]
    assert document["skipped"] == [{"id": "x", "why": "tp = 2"}]
    assert document["summary"] == [
        {
            "source_id": "a",
            "metric": "step_seconds",
            "rows": 1,
            "median_abs_error": 0.5,
            "p90_abs_error": 0.5,
            "median_error": 0.5,
            "share_inside_band": None,
        }
    ]


def test_a_frame_and_a_csv_have_a_line_for_each_prediction() -> None:
    result = _backtest(_score(1.5), _score(0.5, "b"))
    assert list(result.to_frame()["error_fraction"]) == [0.5, -0.5]
    head, first, _ = result.to_csv().splitlines()
    assert head.startswith("id,source_id,metric,measured")
    assert first.endswith("0.5,fabric shard_size")


def test_a_notebook_shows_the_summary() -> None:
    page = _backtest(_score(1.5, "<log>"))._repr_html_()
    assert "&lt;log&gt;" in page
    assert "overall" in page
