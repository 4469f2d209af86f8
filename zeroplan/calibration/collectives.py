"""A link's constants from measured collectives."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Final

from zeroplan.backtesting.collectives import Measured, measured_collectives
from zeroplan.backtesting.record import Skip
from zeroplan.calibration.fit import Constant, Fitted, fitted, value_of, with_quantity
from zeroplan.calibration.logs import measured_log
from zeroplan.calibration.record import Calibration
from zeroplan.calibration.residuals import Errors, HeldOut, errors_of, held_out
from zeroplan.calibration.suspects import slow_collectives
from zeroplan.calibration.sweeps import Sweep, alike, publisher_of, sweeps
from zeroplan.errors import SpecError, perhaps
from zeroplan.hardware import Catalogue, Link, Quantity, load_catalogue
from zeroplan.hardware.profile import Fit
from zeroplan.hardware.quantity import unit_of
from zeroplan.records import dataclass, replace

__all__ = ["Choice", "calibrate_collectives", "used_rows"]

SOURCE: Final = "calibration"
"""Key of the fitted numbers' source: the profile's own table `fit`."""

DISAGREEMENT: Final = 2.0
"""Error of one large message in ten beyond which the points contradict each other. [1]"""

SMALLEST_BAND: Final = 0.02
UNTESTED_BAND: Final = 0.15
"""Least half-width of a band with sources held out, and without. [1]"""
OWN_POINTS_FLATTER: Final = 2.0
"""What errors on fitted points are multiplied by where no source could be held out whole. [1]"""

RATES: Final = (
    "bandwidth_efficiency",
    "ring_efficiency_by_gpus",
    "host_bytes_per_second",
    "gloo_bytes_per_second",
)
"""Without one of these a fit says nothing of large messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which points of the table are used, and for which constants."""

    constants: tuple[str, ...] = ()
    """Keys of the profile; all if there are none."""
    collectives: tuple[str, ...] = ()
    """Names as in the table; all if there are none."""
    gpus: tuple[str, ...] = ()
    """Profiles of GPUs; all if there are none."""
    min_bytes: int = 0
    """Smallest message. [B]"""
    equal_sources: bool = False
    """Whether every source weighs the same, else every point of its size does."""


def calibrate_collectives(
    table: str | Path,
    link: str,
    *,
    choice: Choice | None = None,
    name: str = "",
    profiles: Path | None = None,
) -> Calibration:
    """Fit the constants of a link to measured collectives: a table (.csv), or a log of nccl-tests.

    Parameters
    ----------
    table
        A CSV as `zeroplan backtest --collectives` reads it.
    link
        Id of the profile that names the link and keeps what the points cannot tell.
    choice
        Which points, and for which constants.
    name
        Id of the new profile, by default that of the old one.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    SpecError
        There are too few points, or they contradict each other; the message says what is lacking.

    """
    choice = choice or Choice()
    catalogue = load_catalogue(profiles)
    start = catalogue.link(link)
    rows, skipped = _read(Path(table), start, catalogue)
    if not used_rows(rows, start, choice):
        links = ", ".join(sorted({row.outer.id for row in rows}))
        raise SpecError(f"{table}: no such row ran on {link!r}; it has {links}.")
    fit = calibrated(
        rows, start, catalogue, choice=choice, command=_command(Path(table), link, choice)
    )
    return replace(fit, link=renamed(fit.link, start, name), skipped=tuple(skipped))


def calibrated(
    rows: Sequence[Measured], start: Link, catalogue: Catalogue, *, choice: Choice, command: str
) -> Calibration:
    """Fit the constants of a link to measured collectives, of which some ran on it.

    Raises
    ------
    SpecError
        There are too few points, or they contradict each other.

    """
    used = used_rows(rows, start, choice)
    everything = used_rows(rows, start, replace(choice, collectives=()))
    others = [row for row in everything if not _among(row, choice.collectives)]
    points = alike(sweeps(used)) if choice.equal_sources else sweeps(used)
    found = _found(start, points, choice)
    errors = errors_of(found.link, points)
    _check_agreement(errors, start.id)
    outside = held_out(start, found, points, sweeps(others))
    fit = replace(
        _origin(used, errors, outside), command=command, date=datetime.now(UTC).date().isoformat()
    )
    return Calibration(
        start=start,
        link=_new_link(start, found, fit, _bands(errors, outside)),
        constants=found.constants,
        kept=found.kept,
        errors=errors,
        held_out=outside,
        slow=slow_collectives(used, catalogue),
        skipped=(),
    )


def renamed(link: Link, start: Link, name: str) -> Link:
    """Return a new link under a name of its own, or as the next revision of the old one."""
    if name in {"", start.id}:
        return replace(link, revision=start.revision + 1)
    return replace(link, id=name, revision=1)


def _read(path: Path, link: Link, catalogue: Catalogue) -> tuple[list[Measured], list[Skip]]:
    """Read a table, or what else it is: a log."""
    if path.suffix == ".csv":
        return measured_collectives(path, catalogue)
    rows, skipped = measured_log(path, link, catalogue)
    if not rows:
        raise SpecError(f"{path}: nothing to fit: {skipped[0].why}.")
    return rows, skipped


def used_rows(rows: Sequence[Measured], link: Link, choice: Choice) -> list[Measured]:
    """Return the rows that a link is told apart by, of those that are chosen."""
    return [
        row
        for row in rows
        if row.outer.id == link.id
        and row.call.message_bytes >= choice.min_bytes
        and _among(row, choice.collectives)
        and (not choice.gpus or row.cells.text("gpu").lower() in choice.gpus)
    ]


def _among(row: Measured, names: Sequence[str]) -> bool:
    """Whether a row's collective is one of these, or all are meant."""
    return not names or row.call.name in names


def _found(start: Link, points: Sequence[Sweep], choice: Choice) -> Fitted:
    found = fitted(start, points, choice.constants)
    known = [each.field for each in found.constants] + list(found.kept)
    for key in choice.constants:
        if key not in {name.partition(".")[0] for name in known}:
            raise SpecError(f"constant {key!r} is none of {start.id}'s.{perhaps(key, known)}")
    if not any(each.field in RATES for each in found.constants):
        lacking = next(why for key, why in found.kept.items() if key.startswith(RATES))
        raise SpecError(f"{start.id}: its bandwidth cannot be told: {lacking}.")
    return found


def _check_agreement(errors: Sequence[Errors], link: str) -> None:
    large = _class(errors, "large")
    if large is not None and large.p90 > DISAGREEMENT:
        raise SpecError(
            f"{link}: the points contradict each other: with the best constants one large message "
            f"in ten is still more than {large.p90:.0%} off. Fit one machine at a time."
        )


def _class(errors: Sequence[Errors], size: str) -> Errors | None:
    found = (e for e in errors if e.collective == "all" and e.size_class == size)
    return next(found, None)


def _bands(errors: Sequence[Errors], outside: HeldOut) -> Mapping[bool, float]:
    """Return the half-widths of the constants for large messages and of the others. [1]

    Files of one source tell how its runs differ, not how the next cluster does.
    """
    tested = outside.sources or outside.collectives

    def worst(sizes: Sequence[str]) -> float:
        held = [e.band for size in sizes if (e := _class(outside.errors, size))]
        flatter, least = (
            (1.0, SMALLEST_BAND) if held and tested else (OWN_POINTS_FLATTER, UNTESTED_BAND)
        )
        own = [e.band * flatter for size in sizes if (e := _class(errors, size))]
        return ceil(100 * max([*held, *own, least])) / 100

    large = max(SMALLEST_BAND, worst(("large",)))
    return {True: large, False: max(large, worst(("medium", "small")))}


def _new_link(start: Link, found: Fitted, fit: Fit, bands: Mapping[bool, float]) -> Link:
    link = found.link
    for each in found.constants:
        link = with_quantity(link, each, _quantity(link, each, bands[each.is_large]))
    return replace(link, revision=start.revision + 1, fit=fit)


def _quantity(link: Link, constant: Constant, band: float) -> Quantity:
    return Quantity(
        value=float(f"{value_of(link, constant):.4g}"),
        unit=unit_of(constant.field),
        kind="fitted",
        source=SOURCE,
        rel_uncertainty=band,
    )


def _origin(used: Sequence[Measured], errors: Sequence[Errors], outside: HeldOut) -> Fit:
    """Return from which points the numbers come, where they hold, and how well."""
    sizes = [row.call.message_bytes for row in used]
    ranks = [row.call.group.ranks for row in used]
    sources = {publisher_of(row.cells.text("source")) for row in used}
    medians = {
        f"{prefix}error_{size}": round(found.median, 4)
        for prefix, group in (("median_", errors), ("held_out_", outside.errors))
        for size in ("large", "medium", "small")
        if (found := _class(group, size))
    }
    return Fit(
        command="",
        date="",
        sources=tuple(sorted(sources)),
        points=len(used),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        fewest_ranks=min(ranks),
        most_ranks=max(ranks),
        held_out=_held_out_words(outside),
        **medians,
    )


def _held_out_words(outside: HeldOut) -> str:
    words = []
    if outside.sources:
        words.append(f"each of {', '.join(outside.sources)}")
    if outside.by_file:
        words.append(f"each file of {', '.join(outside.by_file)}")
    if outside.collectives:
        words.append(f"every {', '.join(outside.collectives)}")
    return "; ".join(words)


def _command(table: Path, link: str, choice: Choice) -> str:
    """Return the command line that does the same again."""
    parts = ["zeroplan calibrate", f"--collectives {table.name}", f"--link {link}"]
    if choice.constants:
        parts.append(f"--constants {','.join(choice.constants)}")
    if choice.collectives:
        parts.append(f"--only {','.join(choice.collectives)}")
    if choice.gpus:
        parts.append(f"--gpus {','.join(choice.gpus)}")
    if choice.min_bytes:
        parts.append(f"--min-bytes {choice.min_bytes}")
    if choice.equal_sources:
        parts.append("--equal-sources")
    return " ".join(parts)
