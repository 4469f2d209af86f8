"""What was read of trainers' files as a spec file that says where each line comes from."""

import json
from collections.abc import Mapping
from typing import Any, Final

from zeroplan.foreign.reading import Reading
from zeroplan.records import dataclass
from zeroplan.spec.reading import keys, read_run
from zeroplan.spec.toml import SCHEMA_VERSION

__all__ = ["Imported", "imported"]

WANTED: Final = {
    "model.source": "no trainer's file says it: give --model",
    "training.sequence_length": "the data say it: give --sequence-length, else it is 4096 at most",
    "cluster.gpus": "the launcher says it: give --gpus, else it is 8",
}
"""What most files lack."""
STAND_IN: Final = "8b"
"""A model with which keys are checked against each other where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Values by spec key, where each is from, and everything else that the files said."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    remarks: tuple[str, ...]
    idle: Mapping[str, str]
    """Keys without bearing, and why."""
    missing: Mapping[str, str]
    """Spec keys that nobody has said, and how to."""

    def to_dict(self) -> dict[str, object]:
        """Return what `import --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "spec": {key: _spelled(value) for key, value in self.values.items()},
            "origins": dict(self.origins),
            "remarks": list(self.remarks),
            "without_bearing": dict(self.idle),
            "missing": dict(self.missing),
        }

    def to_toml(self) -> str:
        """Return a spec file; what has no line of its own stands in comments."""
        lines = [f"schema_version = {SCHEMA_VERSION}"]
        lines += _comment("Missing", [f"{key}: {why}" for key, why in self.missing.items()])
        lines += _comment("Look at", self.remarks)
        lines += _comment("Without bearing", [f"{key}: {why}" for key, why in self.idle.items()])
        current = ""
        for key, value in self.values.items():
            table, _, name = key.rpartition(".")
            if table != current:
                lines += ["", f"[{table}]"]
                current = table
            said = json.dumps(_spelled(value), ensure_ascii=False)
            lines.append(f"{name} = {said}  # {_line(self.origins[key])}")
        return "\n".join(lines) + "\n"


def imported(reading: Reading, spec: Mapping[str, object], flags: Mapping[str, object]) -> Imported:
    """Lay files over a spec and flags over both, and check the keys against each other."""
    values = {**spec, **reading.values, **flags}
    origins = (
        dict.fromkeys(spec, "the spec file") | reading.origins | dict.fromkeys(flags, "a flag")
    )
    read_run({"model.source": STAND_IN}, values)
    missing = {key: why for key, why in (WANTED | reading.open).items() if key not in values}
    return Imported(
        values={key: values[key] for key in keys() if key in values},
        origins={key: origins[key] for key in keys() if key in values},
        remarks=tuple(reading.remarks),
        idle=reading.idle,
        missing=missing,
    )


def _spelled(value: object) -> object:
    return "auto" if value is None else value


def _line(text: str) -> str:
    """Return a text without what would end a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _comment(title: str, lines: Any) -> list[str]:
    return ["", f"# {title}:", *(f"#   {_line(line)}" for line in lines)] if lines else []
