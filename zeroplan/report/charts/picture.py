"""A chart as a file: PNG, SVG or PDF with its alt text, and its numbers as CSV."""

import io
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from zeroplan.records import dataclass
from zeroplan.report.charts.style import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PICTURES", "Chart", "Kind", "figure_of", "save", "svg_of"]

PICTURES: Final = (".png", ".svg", ".pdf")
"""Suffixes of the files that can be written."""

WIDTH: Final = 6.8
"""Of a page's text. [in]"""


class Chart(Protocol):
    """What every chart's data says about itself."""

    @property
    def title(self) -> str:
        """The finding."""

    @property
    def context(self) -> str:
        """What it is about: model, GPUs, batch."""

    @property
    def alt(self) -> str:
        """The sentences for a reader who cannot see it."""

    def rows(self) -> list[dict[str, object]]:
        """Return its numbers, in SI units that the names say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How one kind of chart is drawn."""

    name: str
    draw: Callable[[Any, Any], object]
    """Takes the data and the axes, one or one for each panel."""
    panels: Callable[[Any], int] | None = None
    """How many axes the data takes; None is one, which is not in a tuple."""
    across: bool = False
    """Whether they stand beside each other, not one above the other."""
    height: Callable[[Any], float] = lambda _: 3.8
    """Of the figure, for some data. [in]"""
    width: Callable[[Any], float] = lambda _: WIDTH
    """The same."""


def figure_of(kind: Kind, data: Chart) -> "Figure":
    """Draw a chart in a figure of its own."""
    from matplotlib import rc_context  # noqa: PLC0415  # only a chart needs matplotlib
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(STYLE):
        figure = Figure(figsize=(kind.width(data), kind.height(data)), layout="constrained")
        if kind.panels is None:
            kind.draw(data, figure.add_subplot())
            return figure
        count = kind.panels(data)
        shape = (1, count) if kind.across else (count, 1)
        kind.draw(data, tuple(figure.add_subplot(*shape, each + 1) for each in range(count)))
    return figure


def save(figure: "Figure", path: Path, suffix: str, title: str, alt: str) -> None:
    """Write a figure, the same bytes each time.

    Parameters
    ----------
    figure
        What is written.
    path
        Where.
    suffix
        One of `PICTURES`, whatever the path ends in.
    title, alt
        What goes into the file's metadata.

    """
    from matplotlib import rc_context  # noqa: PLC0415

    if suffix == ".svg":
        path.write_text(svg_of(figure, title, alt), encoding="utf-8")
        return
    texts: dict[str, dict[str, str | None]] = {
        ".png": {"Title": title, "Description": alt},
        ".pdf": {"Title": title, "Subject": alt, "CreationDate": None},
    }
    with rc_context(STYLE):
        figure.savefig(path, format=suffix[1:], dpi=300, metadata=texts[suffix])


def svg_of(figure: "Figure", title: str, alt: str) -> str:
    """Return a figure as SVG with a title and a description for screen readers."""
    from matplotlib import rc_context  # noqa: PLC0415

    text = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Title": title})
    head, end, body = text.getvalue().partition("</title>")
    return f"{head}{end}\n <desc>{escape(alt)}</desc>{body}".replace("<svg ", '<svg role="img" ', 1)
