"""The formats, and which of them a file is in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from zeroplan.errors import SpecError, UsageError, perhaps
from zeroplan.foreign.accelerate import read_accelerate
from zeroplan.foreign.accelerate_table import ACCELERATE
from zeroplan.foreign.deepspeed import read_deepspeed
from zeroplan.foreign.deepspeed_table import DEEPSPEED
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.fsdp2 import FSDP2, read_fsdp2
from zeroplan.foreign.parsing import leaves, parse
from zeroplan.foreign.sorting import Found
from zeroplan.foreign.table import Table, nearest
from zeroplan.foreign.torchtitan import read_torchtitan
from zeroplan.foreign.torchtitan_table import TORCHTITAN
from zeroplan.foreign.training_args import read_training_args
from zeroplan.foreign.training_args_table import TRAINING_ARGS
from zeroplan.records import dataclass

__all__ = ["FORMATS", "Format", "chosen", "values_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    name: str
    title: str
    language: str
    table: Table
    read: Callable[[Found, Draft, Asked], None]


FORMATS: Final = {
    each.name: each
    for each in (
        Format(name="training-args", title="transformers' TrainingArguments", language="json", table=TRAINING_ARGS, read=read_training_args),
        Format(name="accelerate", title="accelerate", language="yaml", table=ACCELERATE, read=read_accelerate),
        Format(name="torchtitan", title="torchtitan", language="toml", table=TORCHTITAN, read=read_torchtitan),
        Format(name="deepspeed", title="DeepSpeed", language="json", table=DEEPSPEED, read=read_deepspeed),
        Format(name="fsdp2", title="FSDP2 script", language="python", table=FSDP2, read=read_fsdp2),
    )
}  # fmt: skip
"""In the order in which files are read together: what leaves things open comes later."""

ENDINGS: Final = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".py": "python",
    ".json": "json",
}


def chosen(name: str | None, path: Path, text: str) -> Format:
    """Return the format that is named, else the one whose keys the file has."""
    if name is not None:
        if name not in FORMATS:
            raise UsageError(
                f"--format {name!r}: use {', '.join(FORMATS)}.{perhaps(name, FORMATS)}"
            )
        return FORMATS[name]
    language = ENDINGS.get(path.suffix.lower(), "json")
    fitting = [each for each in FORMATS.values() if each.language == language]
    if len(fitting) == 1:
        return fitting[0]
    given = leaves(parse(text, language, str(path)), str(path))
    known = {
        each.name: sum(nearest(each.table, key) is not None for key in given) for each in fitting
    }
    best = max(fitting, key=lambda each: known[each.name])
    if not known[best.name] and given:
        raise SpecError(
            f"{path}: no key of {' or '.join(each.title for each in fitting)}. Name its --format."
        )
    return best


def values_of(form: Format, text: str, place: str) -> dict[str, Any]:
    """Return the values of a file by dotted key."""
    return leaves(parse(text, _language(form, place), place), place)


def _language(form: Format, place: str) -> str:
    """Return the language; accelerate takes JSON where a file's name says so."""
    return "json" if form.language == "yaml" and place.lower().endswith(".json") else form.language
