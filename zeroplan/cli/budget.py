"""How many tokens a run takes in and what a GPU-hour costs: flags that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.errors import UsageError
from zeroplan.spec.run import Run

if TYPE_CHECKING:
    from zeroplan.estimation.record import Estimate

__all__ = ["PRICES", "Price", "Tokens", "answerer"]

BUDGET: Final = "Budget"
"""Panel of the help page."""

PRICES: Final = "of all GPUs (2.5) or of each (h100-sxm5-80gb=2.5,...)"
"""How a help page says which prices can be given."""

Tokens = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Tokens to train on (2T, 300B, 1.5e12): days, GPU-hours and cost.",
        rich_help_panel=BUDGET,
    ),
]
Price = Annotated[
    str | None,
    typer.Option(
        metavar="USD",
        help=f"Price of a GPU-hour, {PRICES}; without it the node type's, where its profile has "
        "one.",
        rich_help_panel=BUDGET,
    ),
]


def answerer(
    tokens: str | None, price: str | None, profiles: Path | None
) -> "Callable[[Run], Estimate]":
    """Return what answers one run, with its budget where tokens are asked for."""
    from zeroplan.estimation import estimate as answer_to  # noqa: PLC0415  # not for --help

    if tokens is None:
        if price is not None:
            raise UsageError("--price needs --tokens: say how many are to be paid for.")
        return lambda run: answer_to(run, profiles=profiles)
    from zeroplan.estimation.budget import (  # noqa: PLC0415
        parse_prices,
        parse_tokens,
        with_budget,
    )

    many, prices = parse_tokens(tokens), parse_prices(price, profiles)
    return lambda run: with_budget(answer_to(run, profiles=profiles), many, prices, profiles)
