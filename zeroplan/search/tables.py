"""What a search found as tables, for the terminal, the notebook and the page alike."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from zeroplan.rows import Cell, Column, Table
from zeroplan.search.record import Choice, Search
from zeroplan.spec.hints import spelled
from zeroplan.units import GIB

__all__ = ["tables"]

SHOWN_APART = ("cluster.gpus",)
"""Keys that have a column of their own."""


class _Figure(NamedTuple):
    name: str
    of: Callable[[Choice], Cell]
    unit: str = ""
    is_text: bool = False


_FIGURES = (
    _Figure("GPUs", lambda each: f"{each.gpus:,}{each.label}"),
    _Figure("device", lambda each: each.device_bytes / GIB, "GiB"),
    _Figure("step", lambda each: each.step_seconds, "s"),
    _Figure("tokens/s", lambda each: each.tokens_per_second),
    _Figure("MFU", lambda each: 100 * each.model_flops_utilization, "%"),
)
_COST = _Figure("USD per Mtoken", lambda each: each.usd_per_million_tokens)


def tables(found: Search) -> Iterator[Table]:
    """Yield the best plans, those that trade speed against GPUs, and those that just miss."""
    if found.best:
        shown = f"{len(found.best)} of {found.fitting:,} plans that fit"
        yield _table(f"The best of each structure and machine: {shown}", found, found.best)
    if len(found.frontier) > 1:
        priced = found.frontier[0].usd_per_million_tokens is not None
        yield _table(f"Fastest for the {'money' if priced else 'GPUs'}", found, found.frontier)
    if found.near_misses:
        missed = [each.choice for each in found.near_misses]
        why = {id(each.choice): each.why for each in found.near_misses}
        reason = _Figure("why not", lambda each: why[id(each)], is_text=True)
        yield _table("Better, but for a limit", found, missed, reason)


def _table(title: str, found: Search, rows: Iterable[Choice], *others: _Figure) -> Table:
    rows = tuple(rows)
    priced = any(each.usd_per_million_tokens is not None for each in rows)
    searched = (key for key, values in found.searched.items() if len(values) > 1)
    keys = [key for key in searched if key not in SHOWN_APART]
    named = tuple(
        _Figure(_head(key), lambda each, key=key: _word(each.keys.get(key, "-")), is_text=True)  # type: ignore[misc]
        for key in keys
    )
    figures = (*named, *_FIGURES, *((_COST,) if priced else ()), *others)
    return Table(
        title=title,
        columns=tuple(Column(name=f.name, unit=f.unit, is_text=f.is_text) for f in figures),
        rows=tuple(tuple(figure.of(each) for figure in figures) for each in rows),
    )


def _head(key: str) -> str:
    """Return a key as a narrow column names it."""
    short = {
        "training.activation_checkpointing": "check\u00adpoint\u00ading",
        "training.micro_batch_size": "micro- batch",
        "training.gradient_accumulation_steps": "micro- steps",
        "training.sequence_length": "length",
        "sharding.reshard_after_forward": "re\u00adshard",
    }
    return short.get(key, key.rpartition(".")[2].replace("_", "-\u00ad"))


def _word(value: object) -> Cell:
    return value if isinstance(value, str) else spelled(value)
