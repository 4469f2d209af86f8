"""Models that zeroplan knows by name: published shapes, one small file each, with their source."""

import json
from pathlib import Path
from typing import Final

from zeroplan.errors import SpecError, perhaps
from zeroplan.records import dataclass

__all__ = ["Preset", "is_preset", "list_presets", "load_preset"]

FOLDER: Final = Path(__file__).parent.parent / "data" / "presets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A published model."""

    name: str
    config: dict[str, object]
    """The keys of its `config.json` that fix its shape."""
    parameters: int
    """Published total, which a test holds the count against. [elements]"""
    source: str


def list_presets() -> tuple[str, ...]:
    """Return the names of all presets in alphabetical order, without reading them."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.json")))


def is_preset(name: str) -> bool:
    """Whether a preset is called that."""
    try:
        return Path(name).name == name and (FOLDER / f"{name}.json").is_file()
    except OSError:  # a name too long for a file
        return False


def load_preset(name: str) -> Preset:
    """Read one preset."""
    file = FOLDER / f"{name}.json"
    if not file.is_file():
        raise SpecError(f"no preset is called {name!r}.{perhaps(name, list_presets())}")
    fields = json.loads(file.read_text(encoding="utf-8"))
    return Preset(name=name, **fields)
