"""What a person would see at once and a test of the file would not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from matplotlib.axis import XAxis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from zeroplan.report.charts.picture import Chart, Kind, figure_of

TOUCHING = 1.0
"""Overlap that is only that of the boxes, not of the letters. [px]"""


def _texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """Yield what is written on a figure with its box; ticks beyond the ends are not drawn."""
    hidden = {
        id(label)
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not _between(tick.get_loc(), ax.get_xlim() if isinstance(axis, XAxis) else ax.get_ylim())
    }
    for text in map(cast_to_text, figure.findobj(Text)):
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden:
            yield text.get_text(), Text.get_window_extent(text)  # without an annotation's arrow


def cast_to_text(artist: Any) -> Text:
    """Narrow what matplotlib only promises to be an artist."""
    assert isinstance(artist, Text)
    return artist


def _between(value: float, ends: tuple[float, float]) -> bool:
    low, high = sorted(ends)
    return low - 1e-9 <= value <= high + 1e-9


@pytest.fixture
def faults() -> Callable[[Kind, Chart], list[str]]:
    """Draw a chart and return which texts leave the page or lie on each other."""

    def find(kind: Kind, data: Any) -> list[str]:
        figure = figure_of(kind, data)
        figure.draw_without_rendering()
        texts = list(_texts(figure))
        assert len(texts) > 4
        page = figure.bbox.padded(TOUCHING)
        found = [
            f"{words!r} leaves the page"
            for words, box in texts
            if not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1))
        ]
        boxes = [(words, box.padded(-TOUCHING)) for words, box in texts]
        for place, (words, box) in enumerate(boxes):
            found += [f"{words!r} on {o!r}" for o, other in boxes[:place] if box.overlaps(other)]
        return found

    return find
