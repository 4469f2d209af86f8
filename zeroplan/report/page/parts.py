"""Pieces that several parts of the page are made of."""

from collections.abc import Iterable
from html import escape

from zeroplan.rows import Table, html, marked

__all__ = ["paragraphs", "scrolled"]


def paragraphs(lines: Iterable[str]) -> str:
    """Return sentences as paragraphs."""
    return "".join(f"<p>{marked(line)}</p>" for line in lines)


def scrolled(table: Table) -> str:
    """Return a table that a narrow screen can push sideways, by keyboard too."""
    title = escape(table.title)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{html(table)}</div>'
    )
