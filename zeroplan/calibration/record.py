"""What a calibration returns: a profile, how far off it is, and what the points could not tell."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from zeroplan.backtesting.record import Skip
from zeroplan.calibration.fit import Constant, known, value_of
from zeroplan.calibration.residuals import Errors, HeldOut
from zeroplan.calibration.suspects import Slow
from zeroplan.calibration.write import profile_toml
from zeroplan.hardware import Link
from zeroplan.hardware.profile import Profile
from zeroplan.records import dataclass
from zeroplan.rows import Cell, Column, Table, html, plain, significant
from zeroplan.units import GB

__all__ = ["Calibration"]

LEGEND: Final = (
    "A held-out point is predicted by a fit that did not see its source, or, where too little is "
    "left without the source, its file."
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calibration:
    """A link profile fitted to measured collectives."""

    start: Link
    """The profile whose other numbers stay."""
    link: Link
    """The new profile."""
    constants: tuple[Constant, ...]
    """What was fitted."""
    kept: Mapping[str, str]
    """Why the other constants stay as they were, by key."""
    errors: tuple[Errors, ...]
    """On the points that were fitted to."""
    held_out: HeldOut
    """On points that were not."""
    slow: tuple[Slow, ...]
    """Collectives that are far slower than the profile said."""
    skipped: tuple[Skip, ...]
    """Rows that could not be read or priced, with their reasons."""

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The new profile, as every answer of a calibration has them."""
        return (self.link,)

    def to_toml(self) -> str:
        """Return the profile as a file."""
        return profile_toml(self.link)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        return {
            "link": self.link.id,
            "started_from": self.start.id,
            "constants": [
                {
                    "key": each.key,
                    "before": self._before(each),
                    "value": value_of(self.link, each),
                }
                for each in self.constants
            ],
            "kept": dict(self.kept),
            "errors": [plain(each) for each in self.errors],
            "held_out": plain(self.held_out),
            "fit": plain(self.link.fit),
            "slow": [plain(each) for each in self.slow],
            "skipped": [plain(each) for each in self.skipped],
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_tables(self) -> tuple[Table, ...]:
        """Return the constants and the errors, and what is slow if anything is."""
        tables = self._constants_table(), self._errors_table()
        return (*tables, self._slow_table()) if self.slow else tables

    def _slow_table(self) -> Table:
        return Table(
            title=f"Far below what {self.start.id} predicts: large messages, bus bandwidth",
            columns=(
                Column(name="collective", is_text=True),
                *(Column(name=name) for name in ("GPUs", "nodes")),
                *(Column(name=name, unit="GB/s") for name in ("measured", "predicted")),
                Column(name="share", unit="%"),
            ),
            rows=tuple(
                (
                    each.collective,
                    f"{each.ranks:,}",
                    f"{each.nodes:,}",
                    each.measured_bytes_per_second / GB,
                    each.expected_bytes_per_second / GB,
                    each.share * 100,
                )
                for each in self.slow
            ),
        )

    def _suspicions(self) -> Iterator[str]:
        """Yield what may be wrong, each suspect once, the closest first."""
        if not self.slow:
            return
        yield "A profile fitted to a sick link predicts a sick link: mend it first if you can."
        suspects = {x.words: x for each in self.slow for x in each.suspects}
        if suspects:
            yield "Suspects, not findings: each would be about as slow. NCCL_DEBUG=INFO tells more."
        else:
            yield "None of the usual suspects would be as slow. NCCL_DEBUG=INFO tells what was used."
        for words, each in suspects.items():
            yield f"- {words}: {significant(each.bytes_per_second / GB)} GB/s"

    def remarks(self) -> Iterator[str]:
        """Yield what a reader should know beside the tables."""
        outside = self.held_out
        yield from self._suspicions()
        yield LEGEND
        if outside.sources:
            yield f"Held out whole: {', '.join(outside.sources)}"
        if outside.by_file:
            yield f"Held out file by file: {', '.join(outside.by_file)}"
        if outside.collectives:
            yield f"Predicted only: {', '.join(outside.collectives)}"
        if outside.missing:
            yield f"Not held out, as too little is left: {', '.join(outside.missing)}"
        if self.kept:
            yield "Constants that stay as they were:"
            yield from (f"- {key}: {why}" for key, why in self.kept.items())

    def _constants_table(self) -> Table:
        return Table(
            title=f"{self.link.id}, fitted to {self.link.fit.points if self.link.fit else 0} points",
            columns=(
                Column(name="constant", is_text=True),
                Column(name="before"),
                Column(name="fitted"),
                Column(name="unit", is_text=True),
            ),
            rows=tuple(self._constant_cells(each) for each in self.constants),
        )

    def _constant_cells(self, each: Constant) -> tuple[Cell, ...]:
        scale, unit = (1e6, "us") if each.field.endswith("_seconds") else (1.0, "")
        if each.field.endswith("per_second"):
            scale, unit = 1.0, "B/s"
        before, found = self._before(each), value_of(self.link, each)
        return each.key, None if before is None else before * scale, found * scale, unit

    def _before(self, each: Constant) -> float | None:
        return value_of(self.start, each) if known(self.start, each) else None

    def _errors_table(self) -> Table:
        return Table(
            title="Errors |predicted / measured - 1|, on fitted points and on held-out ones",
            columns=(
                Column(name="collective", is_text=True),
                Column(name="message", is_text=True),
                Column(name="points"),
                *(Column(name=name, unit="%") for name in ("median", "p90")),
                Column(name="held out"),
                *(Column(name=name, unit="%") for name in ("median", "p90")),
            ),
            rows=tuple(self._error_rows()),
        )

    def _error_rows(self) -> Iterator[tuple[Cell, ...]]:
        outside = {(each.collective, each.size_class): each for each in self.held_out.errors}
        for each in self.errors:
            other = outside.get((each.collective, each.size_class))
            yield (
                each.collective,
                each.size_class,
                f"{each.points:,}",
                each.median * 100,
                each.p90 * 100,
                f"{other.points:,}" if other else None,
                other.median * 100 if other else None,
                other.p90 * 100 if other else None,
            )

    def __repr__(self) -> str:
        return f"Calibration({self.link.id}, {len(self.constants)} constants)"

    def _repr_html_(self) -> str:
        return "".join(html(table) for table in self.to_tables())
