"""Hardware profiles for a person: every number with its kind and source, and what two differ in."""

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap

from zeroplan.hardware.diff import Difference, differences
from zeroplan.hardware.profile import Link, Profile, entries
from zeroplan.hardware.quantity import Choice, Quantity
from zeroplan.hardware.read import Source
from zeroplan.report.terminal import Page, table_text
from zeroplan.rows import Column, Table
from zeroplan.units import MIB, SCALES

__all__ = ["cell", "difference_text", "profile_text"]


def profile_text(profile: Profile, sources: Mapping[str, Source], on: Page) -> str:
    """Return a table of the numbers, then their notes, then the sources by their number."""
    numbers = _numbers(sources)
    table = Table(
        title=f"{profile.id}, revision {profile.revision}: {profile.name}",
        columns=_columns("quantity", "value", "+/-", "kind", "source"),
        rows=tuple(
            (key, *_shown(entry), entry.kind, numbers[entry.source])
            for key, entry in entries(profile)
        ),
    )
    notes = [f"  {key}: {entry.note}" for key, entry in entries(profile) if entry.note]
    parts = [_fit_lines("Fit", profile), ["Notes", *notes], _source_lines(sources)]
    return _joined([table_text(table, on), *(_folded(part, on) for part in parts)])


def difference_text(
    first: Profile, second: Profile, sources: Mapping[str, Source], on: Page
) -> str:
    """Return what changed between two profiles, a line of each, then notes and sources."""
    found = differences(first, second)
    title = f"A: {first.id}, revision {first.revision}. B: {second.id}, revision {second.revision}"
    if not found:
        return f"{title}\n\nNothing differs.\n"
    numbers = _numbers(sources)
    table = Table(
        title=title,
        columns=_columns("quantity", "", "value", "+/-", "change", "kind", "source"),
        rows=tuple(row for each in found for row in _difference_rows(each, numbers)),
    )
    notes = [f"  {each.key}: {note}" for each in found if (note := getattr(each.after, "note", ""))]
    parts = [
        *(_fit_lines(f"Fit of {side}", each) for side, each in (("A", first), ("B", second))),
        ["Notes of B", *notes] if notes else [],
        _source_lines(sources),
    ]
    return _joined([table_text(table, on), *(_folded(part, on) for part in parts)])


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _difference_rows(
    each: Difference, numbers: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str, str, str, str]]:
    change = "" if each.change is None else f"{each.change:+.1%}"
    yield (each.key, "A", *_of(each.before, "", numbers))
    yield ("", "B", *_of(each.after, change, numbers))


def _of(
    value: Quantity | Choice | str | None, change: str, numbers: Mapping[str, str]
) -> tuple[str, str, str, str, str]:
    if isinstance(value, Quantity | Choice):
        shown, share = _shown(value)
        return shown, share, change, value.kind, numbers[value.source]
    return value or "-", "", change, "", ""


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, is_text=name in {"quantity", "", "kind"}) for name in names)


def _numbers(sources: Mapping[str, Source]) -> dict[str, str]:
    return {key: str(number) for number, key in enumerate(sources, start=1)}


def _source_lines(sources: Mapping[str, Source]) -> Iterator[str]:
    if sources:
        yield "Sources"
    for number, source in enumerate(sources.values(), start=1):
        yield f"  {number}  {source.title} {source.url}"


def _folded(lines: Iterable[str], on: Page) -> str:
    """Return lines, folded where somebody looks; addresses stay whole."""
    folded = (
        wrap(
            line,
            on.width,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
    return "".join(f"{part}\n" for parts in folded for part in parts or [""])


def _fit_lines(title: str, profile: Profile) -> Iterator[str]:
    """Yield where the fitted numbers of a link come from, where they hold and how well."""
    fit = profile.fit if isinstance(profile, Link) else None
    if fit is None:
        return
    small, large = fit.smallest_bytes / MIB, fit.largest_bytes / MIB
    ranks = f"{fit.fewest_ranks} to {fit.most_ranks} GPUs"
    median = fit.median_error_large, fit.median_error_medium, fit.median_error_small
    yield title
    yield f"  {fit.command}, {fit.date}"
    yield f"  {fit.points:,} points of {', '.join(fit.sources)}"
    yield f"  messages of {small:,.4g} to {large:,.6g} MiB, {ranks}"
    yield f"  median error above 16 MiB, from 1 MiB, below: {', '.join(map(_share, median))}"
    if fit.held_out:
        held = fit.held_out_error_large, fit.held_out_error_medium, fit.held_out_error_small
        yield f"  the same held out: {', '.join(map(_share, held))} ({fit.held_out})"


def _share(error: float | None) -> str:
    return "-" if error is None else f"{error:.1%}"


def _shown(entry: Quantity | Choice) -> tuple[str, str]:
    """Return the value with its unit, and its uncertainty."""
    if isinstance(entry, Choice):
        return entry.value, ""
    scale, unit = SCALES.get(entry.unit, (1, entry.unit))
    if unit == "GiB" and entry.value < scale:
        scale, unit = MIB, "MiB"
    share = "" if entry.rel_uncertainty is None else f"{entry.rel_uncertainty:.0%}"
    return f"{cell(entry.value, scale)} {unit}".rstrip(), share


def cell(value: str | float | None, scale: float) -> str:
    """Return a value for a reader, numbers scaled and to four digits."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value / scale:,.4g}"
