"""The chart of a backtest: what it says, and that nothing on it overlaps or leaves the page."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from zeroplan.backtesting.record import Backtest, Metric, Score
from zeroplan.report.charts.parity import KIND, data_parity, parity
from zeroplan.report.charts.picture import figure_of, svg_of


def test_it_says_how_far_off_half_of_the_figures_are() -> None:
    ax = parity(_scores("step_seconds", 1.0, 1.02, 1.3), Figure().add_subplot())
    assert ax.get_title(loc="left") == "Half of 3 steps are within 2.0 %"
    assert ax.get_xlabel() == "measured seconds of a step [s]"


def test_every_row_is_a_point_where_it_belongs() -> None:
    ax = parity(_scores("step_seconds", 1.0, 1.02, 1.3), Figure().add_subplot())
    points = np.asarray(ax.collections[-1].get_offsets())
    assert points == pytest.approx(np.array([(1.0, 1.0), (2.0, 2.04), (3.0, 3.9)]))


def test_a_sentence_tells_what_the_chart_shows() -> None:
    scores = _scores("step_seconds", 1.0, 1.1) + _scores("peak_bytes", 1.0)
    data = data_parity(Backtest(rows=scores, skipped=()))
    assert data.alt == (
        "Predicted against measured: half of 2 steps are within 5.0 %; the one peak is within 0 %."
    )
    assert "measured peak memory [GiB]" in svg_of(figure_of(KIND, data), data.title, data.alt)


def test_its_numbers_are_those_of_the_backtest() -> None:
    data = data_parity(Backtest(rows=_scores("step_seconds", 1.0, 1.1), skipped=()))
    assert [row["predicted"] for row in data.rows()] == [1.0, 2.2]


def test_texts_neither_overlap_nor_leave_the_page() -> None:
    figure = Figure(figsize=(3.6, 3.8), layout="constrained")
    ax = parity(_scores("step_seconds", 1.0, 1.02, 1.3), figure.add_subplot())
    figure.draw_without_rendering()
    ticks = [
        tick.label1
        for axis, ends in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim()))
        for tick in axis.get_major_ticks()
        if ends[0] <= tick.get_loc() <= ends[1]
    ]
    texts = [ax.xaxis.label, ax.yaxis.label, *ax.texts, *ticks]
    texts += [t for t in ax.findobj(Text) if t.get_text() == ax.get_title(loc="left")]
    boxes = [text.get_window_extent() for text in texts]
    assert len(boxes) > 5
    for place, box in enumerate(boxes):
        assert figure.bbox.fully_containsx(box.x0)
        assert figure.bbox.fully_containsx(box.x1)
        assert [texts[i].get_text() for i in range(place) if box.overlaps(boxes[i])] == []


def _scores(metric: Metric, *ratios: float) -> tuple[Score, ...]:
    return tuple(
        Score(
            id=str(number),
            source_id="mine",
            group={"source_id": "mine"},
            metric=metric,
            measured=float(number),
            predicted=number * ratio,
            low=number * ratio * 0.9,
            high=number * ratio * 1.2,
        )
        for number, ratio in enumerate(ratios, start=1)
    )
