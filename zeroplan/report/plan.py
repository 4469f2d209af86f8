"""What a search found, for a person."""

from collections.abc import Iterator
from dataclasses import replace

from zeroplan.estimation.budget import Price, price_note
from zeroplan.estimation.record import Budget
from zeroplan.estimation.tables import span, tokens_words
from zeroplan.report.terminal import PROSE_WIDTH, Page, command_text, prose, table_text
from zeroplan.rows import readable, significant
from zeroplan.search.record import OBJECTIVES, Choice, Nearest, Search
from zeroplan.search.tables import tables
from zeroplan.spec.hints import spelled
from zeroplan.units import DAY, HOUR

__all__ = ["plan_text"]


def plan_text(found: Search, on: Page, *, command: str) -> str:
    """Return the best plan in words, the tables, and how to look closer.

    Parameters
    ----------
    found
        What was found.
    on
        What it is printed on.
    command
        The `zeroplan estimate` line that answers for the best plan alone.

    """
    sheet = replace(on, width=min(on.width, PROSE_WIDTH))
    parts = [prose(_summary(found), on), *(table_text(each, sheet) for each in tables(found))]
    if command:
        parts.append(f"Look closer:\n{command_text(command, on)}")
    refused = (f"{each.plans:,} more plans cannot be: {each.why}" for each in found.refused)
    notes = [f"- {note}" for note in (*_prices(found), *_hypothetical(found), *refused)]
    if notes:
        parts.append(prose(("Notes", *notes), on))
    return "\n".join(parts)


def _summary(found: Search) -> Iterator[str]:
    best = found.chosen
    if found.interrupted:
        so_far = "this is the best so far" if best else "nothing that fits was found so far"
        yield f"Interrupted: {so_far}."
    others = sum(each.plans for each in found.refused)
    apart = f" {others:,} more cannot be and are not among them (notes)." if others else ""
    yield f"{found.plans:,} plans, {found.fitting:,} fit.{apart}"
    if best is None:
        if not found.interrupted:
            yield "Nothing fits; `zeroplan explain --make-it-fit` looks for what would."
        yield from _nearest(found)
        return
    told = found.estimate
    strategy = best.keys.get("sharding.strategy", told and told.estimates[0].strategy)
    yield f"{OBJECTIVES[found.objective]}: {_named(best, strategy, best.label)}."
    if best.hypothetical is not None:
        yield best.hypothetical
    yield (
        f"{significant(best.step_seconds)} s per step ({significant(best.low_seconds)} to "
        f"{significant(best.high_seconds)} s), {significant(best.tokens_per_second)} tokens/s of "
        f"all GPUs together, {readable(best.headroom_bytes, 'B')} of headroom."
    )
    if best.usd_per_million_tokens is not None:
        yield f"{significant(best.usd_per_million_tokens)} USD per million tokens."
    if found.budget is not None:
        yield _budget(found.budget)


def _budget(asked: Budget) -> str:
    """Say what a number of tokens takes, each figure with its band."""
    run, low, high = asked.run_seconds, asked.low_run_seconds, asked.high_run_seconds
    hours = asked.gpu_seconds, asked.low_gpu_seconds, asked.high_gpu_seconds
    figures = [
        _banded("days", run / DAY, low / DAY, high / DAY),
        _banded("GPU-hours", *(each / HOUR for each in hours)),
    ]
    if asked.cost_usd is None:
        figures.append("no cost without --price")
    else:
        figures.append(_banded("USD", asked.cost_usd, asked.low_cost_usd, asked.high_cost_usd))
    return f"{tokens_words(asked.tokens)} tokens, training steps alone: {', '.join(figures)}."


def _banded(unit: str, value: float, low: float | None, high: float | None) -> str:
    return f"{significant(value)} {unit} ({span(low, high)})"


def _nearest(found: Search) -> Iterator[str]:
    nearest = found.nearest
    if nearest is not None:
        needed, there, missing = (
            readable(size, "B")
            for size in (nearest.device_bytes, nearest.usable_bytes, nearest.missing_bytes)
        )
        yield (
            f"Nearest comes {_named(nearest, nearest.strategy)}: {needed} needed, {there} usable, "
            f"{missing} missing."
        )
        if nearest.hypothetical is not None:
            yield nearest.hypothetical


def _prices(found: Search) -> dict[str, None]:
    """Say what a GPU-hour of each plan that is shown costs, each price once."""
    return dict.fromkeys(
        price_note(Price(each.price_usd_per_gpu_hour, each.price_source or ""))
        for each in _shown(found)
        if each.price_usd_per_gpu_hour is not None
    )


def _hypothetical(found: Search) -> dict[str, None]:
    """Say how GPUs are joined as no machine joins them, where the best plan does not say it."""
    told = found.chosen and found.chosen.hypothetical
    return dict.fromkeys(
        each.hypothetical
        for each in _shown(found)
        if each.hypothetical is not None and each.hypothetical != told
    )


def _shown(found: Search) -> tuple[Choice, ...]:
    return (*found.best, *found.frontier, *(miss.choice for miss in found.near_misses))


def _named(choice: Choice | Nearest, strategy: object, label: str = "") -> str:
    """Name a plan by its strategy, in the answer where it alone was asked for, and other values."""
    others = (
        f"{key.rpartition('.')[2].replace('_', ' ')} {spelled(value)}"
        for key, value in choice.keys.items()
        if key not in ("cluster.gpus", "cluster.gpu", "sharding.strategy")
    )
    return ", ".join((f"{strategy} on {choice.gpus} {choice.gpu}{label}", *others))
