"""Why a step is slow and what makes a run fit, as tables for the terminal and the notebook."""

from collections.abc import Iterator

from zeroplan.estimation.break_even import Enough
from zeroplan.estimation.explain_record import Remedy
from zeroplan.estimation.explain_tables import signed
from zeroplan.estimation.make_it_fit import MakeItFit
from zeroplan.estimation.tables import gib
from zeroplan.estimation.why_slow import NOISE, WhySlow
from zeroplan.rows import Cell, Column, Table, significant
from zeroplan.units import GB, GIB, GIGABIT

__all__ = ["all_tight", "fit_tables", "slow_tables"]


def slow_tables(told: WhySlow) -> Iterator[Table]:
    """Yield the tables in reading order."""
    step = told.estimate.time.step_seconds or 0.0
    yield Table(
        title="Where the step goes",
        columns=(
            Column(name="part", is_text=True),
            Column(name="time", unit="s"),
            Column(name="share", unit="%"),
        ),
        rows=tuple(
            (part.name, part.seconds, f"{100 * part.seconds / step:.1f}")
            for part in told.parts
            if part.seconds > NOISE or part.cause == "communication"
        ),
    )
    if told.collectives:
        yield _collectives(told)
    if told.nics is not None:
        yield _nics(told)
    if told.tokens is not None and told.bandwidth is not None:
        yield _break_even(told, told.tokens, told.bandwidth)
    if told.changes:
        rate = told.estimate.time.tokens_per_second_per_gpu or 0.0
        yield _changes("What would be faster, and its price in memory", told.changes, rate)


def fit_tables(told: MakeItFit) -> Iterator[Table]:
    """Yield what makes it fit, or what comes nearest."""
    rate = told.estimate.time.tokens_per_second_per_gpu or 0.0
    if told.changes:
        yield _changes(_fit_title(told.changes), told.changes, rate)
    elif told.nearest is not None:
        yield _changes("Nothing makes it fit; what comes nearest", (told.nearest,), rate)


def _fit_title(changes: tuple[Remedy, ...]) -> str:
    """Say whether they fit or may, and in which order they stand."""
    what = "What may make it fit" if all_tight(changes) else "What makes it fit"
    certain = changes if all_tight(changes) else [e for e in changes if e.verdict != "tight"]
    last = ", then what only may" if len(certain) < len(changes) else ""
    rates = [each.tokens_per_second_per_gpu for each in certain]
    if rates == sorted(rates, reverse=True):
        return f"{what}, the cheapest first{last}"
    return f"{what}: single changes, then several{last or ', the cheapest of each first'}"


def all_tight(changes: tuple[Remedy, ...]) -> bool:
    """Whether the limit lies within the uncertainty of each."""
    return all(each.verdict == "tight" for each in changes)


def _collectives(told: WhySlow) -> Table:
    return Table(
        title="Collectives of a step, and what each costs it",
        columns=(
            Column(name="collective", is_text=True),
            Column(name="group", is_text=True),
            Column(name="sent per GPU", unit="GB"),
            Column(name="time", unit="s"),
            Column(name="exposed", unit="s"),
        ),
        rows=tuple(
            (
                each.name.replace("_", "-"),
                each.group,
                each.wire_bytes / GB,
                each.seconds,
                each.exposed_seconds,
            )
            for each in told.collectives
        ),
    )


def _nics(told: WhySlow) -> Table:
    nics = told.nics
    rows: tuple[tuple[Cell, ...], ...] = ()
    if nics is not None:
        rows = (
            (
                nics.link,
                f"{nics.nics:g}",
                nics.bytes_per_nic / GB,
                nics.line_bytes_per_second / GIGABIT,
                nics.line_seconds,
            ),
        )
    return Table(
        title="Through each NIC in a step",
        columns=(
            Column(name="link", is_text=True),
            Column(name="NICs of a node"),
            Column(name="sent by each", unit="GB"),
            Column(name="line rate", unit="Gbit/s"),
            Column(name="at line rate", unit="s"),
        ),
        rows=rows,
    )


def _break_even(told: WhySlow, tokens: Enough, bandwidth: Enough) -> Table:
    several = told.nics is not None
    where, scale = (
        ("of a node's NICs [Gbit/s]", GIGABIT) if several else ("of a GPU's link [GB/s]", GB)
    )
    return Table(
        title="What hides the communication",
        columns=(
            Column(name="quantity", is_text=True),
            Column(name="now"),
            Column(name="enough"),
            Column(name="memory there", is_text=True),
        ),
        rows=(
            (
                "tokens of a GPU and micro-step",
                f"{tokens.now:,.0f}",
                "none" if tokens.needed is None else f"{tokens.needed:,.0f}",
                _words(tokens),
            ),
            (
                f"bandwidth {where}",
                bandwidth.now / scale,
                "none" if bandwidth.needed is None else bandwidth.needed / scale,
                _words(bandwidth),
            ),
        ),
    )


def _words(enough: Enough) -> str:
    return "-" if enough.verdict is None else enough.verdict.replace("_", " ")


def _changes(title: str, changes: tuple[Remedy, ...], rate: float) -> Table:
    return Table(
        title=title,
        columns=(
            Column(name="change", is_text=True),
            Column(name="step", unit="s"),
            Column(name="tokens/s /GPU", unit="%"),
            Column(name="peak change", unit="GiB"),
            Column(name="device", unit="GiB"),
            Column(name="verdict", is_text=True),
            Column(name="price", is_text=True),
        ),
        rows=tuple(
            (
                each.change,
                significant(each.step_seconds),
                signed(100 * (each.tokens_per_second_per_gpu / rate - 1)) if rate else None,
                signed(-each.saved_bytes / GIB),
                gib(each.device_bytes),
                each.verdict.replace("_", " "),
                each.why,
            )
            for each in changes
        ),
    )
