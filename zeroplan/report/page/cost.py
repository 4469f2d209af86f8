"""What the answers around a question cost: a price and a number of tokens, which the reader gives.

`page.js` follows the same steps as `zeroplan.estimation.budget`: whole steps, times the step, times
the GPUs, times the price.
"""

from html import escape
from typing import Final

from zeroplan.estimation.record import Estimate
from zeroplan.report.page.grid import AXES, Grid
from zeroplan.rows import Column
from zeroplan.units import GIGA

__all__ = ["cost_fields", "cost_table"]

COLUMNS: Final = {
    "million": Column(name="million tokens", unit="USD"),
    "days": Column(name="all tokens", unit="days"),
    "total": Column(name="all tokens", unit="USD"),
    "ends": Column(name="eight in ten", unit="USD"),
}
"""Of the table, by the name under which `page.js` fills them."""


def cost_fields(answer: Estimate) -> str:
    """Return the fields for a price and for tokens, with those of the question if it has any."""
    budget = answer.estimates[0].budget
    price = None if budget is None else budget.price_usd_per_gpu_hour
    tokens = None if budget is None else budget.tokens / GIGA
    return _field("price", "Price of a GPU-hour [USD]", price) + _field(
        "tokens", "Tokens to train on [billions]", tokens
    )


def cost_table(grid: Grid) -> str:
    """Return the table that is filled where there is a price or a number of tokens."""
    head = "".join(
        f'<th scope="col">{escape(column.title)}</th>'
        for column in (Column(name="strategy", is_text=True), *COLUMNS.values())
    )
    cells = "".join(f'<td data-cost="{name}"></td>' for name in COLUMNS)
    rows = "".join(
        f'<tr data-row="{escape(strategy)}"><th scope="row">{escape(strategy)}</th>{cells}</tr>'
        for strategy in grid.axes[AXES[0]]
    )
    title = "What it costs"
    return (
        f'<div class="scroll" id="what-if-cost" tabindex="0" role="region" aria-label="{title}" hidden>'
        f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        "<p>Training steps alone: evaluation, checkpoints and restarts are not in it.</p></div>"
    )


def _field(name: str, label: str, value: float | None) -> str:
    filled = "" if value is None else f' value="{value:.12g}"'
    return (
        f'<div><label for="give-{name}">{escape(label)}</label>'
        f'<input type="number" id="give-{name}" min="0" step="any" inputmode="decimal" '
        f'placeholder="none"{filled}>'
        f'<p class="wrong" id="wrong-{name}" role="alert" hidden>Give a number above zero.</p></div>'
    )
