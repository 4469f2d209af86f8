"""Combinations side by side as tables, for the terminal, the notebook and the page alike."""

from collections.abc import Iterator
from typing import Final

from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.several import Answered, Comparison
from zeroplan.estimation.tables import (
    BUDGET,
    COSTS,
    Figure,
    gib,
    percent,
    span,
    tokens_words,
    verdict_words,
)
from zeroplan.rows import Cell, Column, Table, text

__all__ = ["tables"]

STRATEGY: Final = Figure("stra\u00adtegy", lambda each: each.strategy, is_text=True)


def _waiting(each: StrategyEstimate) -> float | None:
    """Return the share of the step in which compute waits for communication. [1]"""
    waits, step = each.time.exposed_communication_seconds, each.time.step_seconds
    return waits / step if waits is not None and step else None


FIGURES: Final = (
    STRATEGY,
    Figure("device", lambda each: gib(each.memory.device_bytes), "GiB"),
    Figure("ver\u00addict", verdict_words, is_text=True),
    Figure("step", lambda each: each.time.step_seconds, "s"),
    Figure("band", lambda each: span(each.time.low_seconds, each.time.high_seconds), "s"),
    Figure("tokens /s /GPU", lambda each: each.time.tokens_per_second_per_gpu),
    Figure("MFU", lambda each: percent(each.time.model_flops_utilization), "%"),
    Figure("waits of step", lambda each: percent(_waiting(each)), "%"),
)
USABLE: Final = Figure("us\u00adable", lambda each: gib(each.memory.usable_bytes), "GiB")
"""What a verdict lays a device beside, where the GPUs of the rows differ in it."""


def tables(told: Comparison, *, best: bool = False) -> Iterator[Table]:
    """Yield the combinations, and what a number of tokens takes with each, where that is asked."""
    rows = list(told.rows(best=best))
    count = len(told.answers) + len(told.refused)
    limits = {text(gib(found.memory.usable_bytes)) for _, found in rows}
    title = f"{count} combinations side by side"
    if len(limits) == 1:
        yield _table(f"{title}, {limits.pop()} GiB usable", told, rows, FIGURES)
    else:
        yield _table(title, told, rows, (*FIGURES[:2], USABLE, *FIGURES[2:]))
    budgets = [found.budget for _, found in rows if found.fits and found.budget]
    if budgets:
        priced = any(budget.cost_usd is not None for budget in budgets)
        fitting = [row for row in rows if row[1].fits]
        figures = (STRATEGY, *(BUDGET[1:4] + COSTS if priced else BUDGET[1:]))
        yield _table(f"{tokens_words(budgets[0].tokens)} tokens", told, fitting, figures)


def _table(
    title: str,
    told: Comparison,
    rows: list[tuple[Answered, StrategyEstimate]],
    figures: tuple[Figure, ...],
) -> Table:
    shown = tuple(each for each in figures if each is not STRATEGY or not _names_strategies(told))
    keys = tuple(
        Column(name=key.rpartition(".")[2].replace("_", "-\u00ad"), is_text=True)
        for key, _ in told.varied
    )
    columns = (Column(name=each.name, unit=each.unit, is_text=each.is_text) for each in shown)
    return Table(
        title=title,
        columns=(*keys, *columns),
        rows=tuple(
            (*labels, *(figure.of(found) for figure in shown))
            for labels, (_, found) in zip(_labels(rows), rows, strict=True)
        ),
    )


def _names_strategies(told: Comparison) -> bool:
    """Whether the strategy is among what varies, and so stands in a column already."""
    return any(key == "sharding.strategy" for key, _ in told.varied)


def _labels(rows: list[tuple[Answered, StrategyEstimate]]) -> Iterator[tuple[Cell, ...]]:
    """Yield the values of each row, those that the row above has too left out."""
    above: tuple[str, ...] = ()
    for each, _ in rows:
        values = tuple(
            f"{value} (hypothetical)"
            if key == "cluster.link" and each.answer.hypothetical
            else value
            for key, value in each.values
        )
        yield _without(values, above) if above else values
        above = values


def _without(values: tuple[str, ...], above: tuple[str, ...]) -> tuple[Cell, ...]:
    """Leave out the values at the start that are those of the row above."""
    same = 0
    while same < len(values) and values[same] == above[same]:
        same += 1
    return ("",) * same + values[same:]
