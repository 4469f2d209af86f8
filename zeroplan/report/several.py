"""Combinations for a person: the table, the winner, and what cannot be."""

from collections.abc import Iterator
from dataclasses import replace

from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.several import Answered, Comparison, tokens_per_second
from zeroplan.estimation.several_tables import tables
from zeroplan.report.terminal import PROSE_WIDTH, Page, prose, table_text
from zeroplan.rows import significant
from zeroplan.units import MEGA

__all__ = ["comparison_text"]


def comparison_text(told: Comparison, on: Page, *, best: bool = False) -> str:
    """Return the tables, who wins, and the notes that any combination has."""
    sheet = replace(on, width=min(on.width, PROSE_WIDTH))
    parts = [table_text(table, sheet) for table in tables(told, best=best)]
    parts.append(prose(_winners(told), on))
    notes = dict.fromkeys(note for each in told.answers for note in each.answer.notes)
    refused = (f"{_named(each.values)}: {each.why}" for each in told.refused)
    lines = [f"- {line}" for line in (*notes, *refused)]
    if lines:
        parts.append(prose(("Notes", *lines), on))
    return "\n".join(parts)


def _winners(told: Comparison) -> Iterator[str]:
    """Name what fits and is fastest, what is best per GPU, and what is cheapest."""
    fastest = told.best(tokens_per_second)
    if fastest is None:
        yield "Nothing fits; each combination shows what is nearest to it."
        return
    all_gpus = significant(tokens_per_second(*fastest))
    yield f"Fastest that fits: {_row(*fastest)}, {all_gpus} tokens/s of all GPUs together."
    frugal = told.best(lambda _, found: found.time.tokens_per_second_per_gpu or 0.0)
    if frugal is not None and frugal != fastest:
        yield f"Most per GPU: {_row(*frugal)}."
    yield from _cheapest(told, fastest)


def _cheapest(told: Comparison, fastest: tuple[Answered, StrategyEstimate]) -> Iterator[str]:
    """Name what is cheapest, and say where others were no match for want of a price."""
    cheapest = told.best(lambda _, found: -(_usd(found) or float("inf")))
    if cheapest is None or (usd := _usd(cheapest[1])) is None:
        return
    paid = f"{significant(usd)} USD per million tokens"
    fitting = [(each.values, _usd(found) is not None) for each, found in told.rows() if found.fits]
    every, priced = (len({each for each, has in fitting if has >= wanted}) for wanted in (0, 1))
    what = "cheapest"
    if priced < every:
        what = "only one with a price" if priced == 1 else "cheapest of those with a price"
    yield (
        f"It is also the {what}: {paid}."
        if cheapest == fastest
        else f"{what.capitalize()}: {_row(*cheapest)}, {paid}."
    )


def _usd(found: StrategyEstimate) -> float | None:
    """Return the price of a million tokens. [USD]"""
    budget = found.budget
    if budget is None or budget.cost_usd is None:
        return None
    return budget.cost_usd / budget.tokens * MEGA


def _row(each: Answered, found: StrategyEstimate) -> str:
    time = found.time
    named = [_named(each.values)]
    if all(key != "sharding.strategy" for key, _ in each.values):
        named.append(found.strategy)
    seconds = " to ".join(significant(end or 0.0) for end in (time.low_seconds, time.high_seconds))
    tight = " (tight)" if found.verdict == "tight" else ""
    speed = significant(time.tokens_per_second_per_gpu or 0.0)
    return (
        f"{', '.join(named)}{tight}: {significant(time.step_seconds or 0.0)} s per step ({seconds} s), "
        f"{speed} tokens/s per GPU"
    )


def _named(values: tuple[tuple[str, str], ...]) -> str:
    """Name a combination: "link ib, gpu h100-sxm5-80gb"."""
    return ", ".join(f"{_word(key)} {value}" for key, value in values)


def _word(key: str) -> str:
    return "model" if key == "model.source" else key.rpartition(".")[2]
