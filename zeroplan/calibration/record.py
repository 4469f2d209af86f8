"""What a calibration returns: a profile, how far off it is, and what the points could not tell."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from zeroplan.backtesting.record import Skip
from zeroplan.calibration.fit import Constant, value_of
from zeroplan.calibration.residuals import Errors, HeldOut
from zeroplan.calibration.write import link_toml
from zeroplan.hardware import Link
from zeroplan.records import dataclass
from zeroplan.rows import Cell, Column, Table, html, plain

__all__ = ["Calibration"]


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
    skipped: tuple[Skip, ...]
    """Rows that could not be read or priced, with their reasons."""

    def to_toml(self) -> str:
        """Return the profile as a file."""
        return link_toml(self.link)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        return {
            "link": self.link.id,
            "started_from": self.start.id,
            "constants": [
                {
                    "key": each.key,
                    "before": value_of(self.start, each),
                    "value": value_of(self.link, each),
                }
                for each in self.constants
            ],
            "kept": dict(self.kept),
            "errors": [plain(each) for each in self.errors],
            "held_out": plain(self.held_out),
            "fit": plain(self.link.fit),
            "skipped": [plain(each) for each in self.skipped],
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_tables(self) -> tuple[Table, Table]:
        """Return the constants and the errors."""
        return self._constants_table(), self._errors_table()

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
        return each.key, value_of(self.start, each) * scale, value_of(self.link, each) * scale, unit

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
