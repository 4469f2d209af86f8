"""What a calibration on records returns: a GPU and a link, how far off, and what was left out."""

import json
from collections.abc import Iterator
from typing import Any

from zeroplan.calibration.gpu import GpuFit
from zeroplan.calibration.record import Calibration
from zeroplan.hardware.profile import Profile
from zeroplan.records import dataclass
from zeroplan.rows import Column, Table, html, plain, readable

__all__ = ["RecordsCalibration"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecordsCalibration:
    """Profiles fitted to records of runs."""

    gpu: GpuFit | None
    """None where the records tell nothing of a GPU."""
    link: Calibration | None
    """None where no collectives were timed by themselves, or too few."""
    notes: tuple[str, ...]
    """What was left out, and why."""

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The new profiles."""
        gpu = () if self.gpu is None else (self.gpu.gpu,)
        return gpu if self.link is None else (*gpu, self.link.link)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        gpu = self.gpu
        return {
            "gpu": gpu
            and {
                "gpu": gpu.gpu.id,
                "constants": [plain(each) for each in gpu.constants],
                "kept": dict(gpu.kept),
            },
            "link": self.link and self.link.to_dict(),
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_tables(self) -> tuple[Table, ...]:
        """Return the constants of each profile, and the errors of a link."""
        gpu = () if self.gpu is None else (_gpu_table(self.gpu),)
        return (*gpu, *(() if self.link is None else self.link.to_tables()))

    def remarks(self) -> Iterator[str]:
        """Yield what a reader should know beside the tables."""
        yield from (f"- {note}" for note in self.notes)
        if self.gpu is not None:
            yield f"What the points of {self.gpu.gpu.id} cover:"
            yield from (f"- {each.key}: {each.valid}" for each in self.gpu.constants)
            yield from (f"- {key} stays as it was: {why}" for key, why in self.gpu.kept.items())
        if self.link is not None:
            yield from self.link.remarks()

    def __repr__(self) -> str:
        return f"RecordsCalibration({', '.join(each.id for each in self.profiles)})"

    def _repr_html_(self) -> str:
        return "".join(html(table) for table in self.to_tables())


def _gpu_table(found: GpuFit) -> Table:
    return Table(
        title=f"{found.gpu.id}, fitted to records of runs",
        columns=(
            Column(name="constant", is_text=True),
            Column(name="before"),
            Column(name="fitted"),
            Column(name="+/-", unit="%"),
            Column(name="points"),
            Column(name="median error", unit="%"),
            Column(name="p90", unit="%"),
        ),
        rows=tuple(
            (
                each.key,
                readable(each.before.value, each.before.unit) if each.before else None,
                readable(each.after.value, each.after.unit),
                100 * (each.after.rel_uncertainty or 0.0),
                f"{each.points:,}",
                100 * each.median_error,
                100 * each.p90_error,
            )
            for each in found.constants
        ),
    )
