"""An explanation as tables, for the terminal, the notebook and the page alike."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from zeroplan.estimation.explain_record import Accounting, Buffer, Explanation, Moment, Term
from zeroplan.estimation.tables import gib
from zeroplan.rows import Cell, Column, Table, readable, significant
from zeroplan.units import GIB

__all__ = ["moment_words", "signed", "tables"]

SMALL: Final = 0.005
"""Share of the peak below which storages of one category are told as one."""

TINY: Final = 0.1
"""Share of that below which they are not told at all: the table shows two decimals."""

NOISE: Final = 1e-6
"""Differences below this (a microsecond, a KiB in GiB) are those of floating point."""

WORDS: Final = {"block": "of blocks", "root": "of the root group"}
"""Owners that read better beside their category."""


def tables(told: Explanation, *, wide: bool = False) -> Iterator[Table]:
    """Yield the tables in reading order; `wide` tells small storages and prices one by one."""
    yield _buffers(told, SMALL if not wide else 0.0)
    if told.next_moments:
        yield _moments(told)
    if told.remedies:
        yield _remedies(told, wide=wide)
    yield _terms("Where the bytes come from", told.memory_terms)
    memory = told.estimate.memory
    if told.inputs.offloads or memory.host_memory_bytes is not None:
        yield _terms("Host memory of a node", told.host_terms)
    if told.accounting is not None:
        yield _accounting(told.accounting)
    yield _time(told)
    if told.sensitivities:
        yield _assumptions(told)


def _buffers(told: Explanation, small: float) -> Table:
    peak = told.peak.tensor_bytes
    rows: list[tuple[Cell, ...]] = []
    for category, members in groupby(told.buffers, key=lambda buffer: buffer.category):
        heads = iter([category.replace("_", " ")])
        for each in _gathered(members, small * peak):
            name = WORDS.get(each.owner, each.owner)
            count = "" if each.count is None else f"{each.count:,}"
            rows.append((next(heads, ""), name, each.blocks, count, *_parts(each.bytes, peak)))
    return Table(
        title=f"Live at the peak: {moment_words(told.peak)}",
        columns=(
            Column(name="category", is_text=True),
            Column(name="what", is_text=True),
            Column(name="blocks", is_text=True),
            Column(name="count"),
            Column(name="size", unit="GiB"),
            Column(name="share", unit="%"),
        ),
        rows=(*rows, ("all tensors", "", "", "", *_parts(peak, peak))),
    )


def _parts(size: int, peak: int) -> tuple[str, str]:
    """Return a size in GiB and in per cent of the peak, decimals in line."""
    return f"{size / GIB:,.2f}", f"{100 * size / peak:.1f}"


def _gathered(members: Iterable[Buffer], small_bytes: float) -> Iterator[Buffer]:
    """Yield the large storages of a category, then its small ones as one, unless that is tiny."""
    minor = []
    for each in members:
        if abs(each.bytes) >= small_bytes:
            yield each
        else:
            minor.append(each)
    size = sum(each.bytes for each in minor)
    if abs(size) < TINY * small_bytes:
        return
    if len(minor) > 1:
        yield replace(minor[0], owner=f"{len(minor)} smaller", blocks="", count=None, bytes=size)
    else:
        yield from minor


def moment_words(moment: Moment) -> str:
    """Name a moment and what the framework does then."""
    if moment.event in (moment.phase, "") or moment.event in moment.name:
        return moment.name
    return f"{moment.name}, {moment.event}"


def _moments(told: Explanation) -> Table:
    return Table(
        title="The next moments",
        columns=(
            Column(name="moment", is_text=True),
            Column(name="tensors", unit="GiB"),
            Column(name="below", unit="GiB"),
        ),
        rows=tuple(
            (moment_words(each), each.tensor_bytes / GIB, each.below_peak_bytes / GIB)
            for each in told.next_moments
        ),
    )


def _remedies(told: Explanation, *, wide: bool) -> Table:
    step = told.estimate.time.step_seconds or 0.0
    split = (Column(name="compute", unit="s"), Column(name="waiting", unit="s")) if wide else ()
    return Table(
        title="What would lower the peak, and its price",
        columns=(
            Column(name="change", is_text=True),
            Column(name="saves", unit="GiB"),
            Column(name="device", unit="GiB"),
            Column(name="verdict", is_text=True),
            Column(name="step", unit="s"),
            Column(name="step", unit="%"),
            *split,
            Column(name="price", is_text=True),
        ),
        rows=tuple(
            (
                each.change,
                each.saved_bytes / GIB,
                gib(each.device_bytes),
                each.verdict.replace("_", " "),
                signed(each.extra_seconds),
                signed(100 * each.extra_seconds / step) if step else None,
                *map(
                    signed, (each.extra_compute_seconds, each.extra_exposed_seconds)[: len(split)]
                ),
                each.why,
            )
            for each in told.remedies
        ),
    )


def _terms(title: str, terms: tuple[Term, ...]) -> Table:
    return Table(
        title=title,
        columns=(
            Column(name="term", is_text=True),
            Column(name="size", unit="GiB"),
            Column(name="formula", is_text=True),
        ),
        rows=tuple((each.name, each.value / GIB, each.formula) for each in terms),
    )


def _accounting(accounting: Accounting) -> Table:
    rows = accounting.rows
    counted = sum(row.counted_bytes for row in rows)
    live = sum(row.live_bytes for row in rows)
    total: tuple[Cell, ...] = (
        "together", counted / GIB, live / GIB, signed((live - counted) / GIB), ""
    )  # fmt: skip
    return Table(
        title=f"{accounting.name} beside the peak",
        columns=(
            Column(name="part", is_text=True),
            Column(name="said", unit="GiB"),
            Column(name="live", unit="GiB"),
            Column(name="more", unit="GiB"),
            Column(name="why", is_text=True),
        ),
        rows=(
            *(
                (
                    row.name,
                    row.counted_bytes / GIB,
                    row.live_bytes / GIB,
                    signed((row.live_bytes - row.counted_bytes) / GIB),
                    row.why,
                )
                for row in rows
            ),
            total,
        ),
    )


def _time(told: Explanation) -> Table:
    return Table(
        title="Where the seconds come from",
        columns=(
            Column(name="term", is_text=True),
            Column(name="time", unit="s"),
            Column(name="formula", is_text=True),
        ),
        rows=tuple((each.name, each.value, each.formula) for each in told.time_terms),
    )


def _assumptions(told: Explanation) -> Table:
    return Table(
        title="Which assumption matters most",
        columns=(
            Column(name="figure", is_text=True),
            Column(name="value", is_text=True),
            Column(name="band", unit="±%"),
            Column(name="step", unit="s", is_text=True),
            Column(name="device", unit="GiB", is_text=True),
            Column(name="known", is_text=True),
        ),
        rows=tuple(
            (
                each.name,
                readable(each.value, each.unit),
                100 * each.rel_uncertainty,
                _range(each.step_seconds),
                _range(tuple(size / GIB for size in each.device_bytes)),
                each.kind,
            )
            for each in told.sensitivities
        ),
    )


def signed(value: float) -> str:
    """Return a difference with its sign."""
    if abs(value) < NOISE:
        return "0"
    return f"+{significant(value, 2)}" if value > 0 else significant(value, 2)


def _range(ends: tuple[float, ...]) -> str:
    return " to ".join(map(signed, ends)) if any(ends) else "-"
