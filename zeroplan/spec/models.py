"""From what a user calls a model (a preset, a path, a size) to its description."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from zeroplan.errors import SpecError, perhaps
from zeroplan.spec.architecture import Architecture
from zeroplan.spec.config_json import read_config
from zeroplan.spec.families import family, rule
from zeroplan.spec.families.experts import refuse_unread_experts
from zeroplan.spec.keys import Keys
from zeroplan.spec.presets import is_preset, list_presets, load_preset
from zeroplan.spec.sizes import NEWEST, is_size, shape_of_size

__all__ = ["architecture_of", "load_architecture", "model_keys"]

GENERIC: Final = "generic"
"""Family whose rule reads decoder-like keys of a model that no rule knows."""

TELLING: Final = ("lora_rank", "nextn_predict")
"""What occurs in the names of keys that say that there are more parameters."""


def load_architecture(source: str | Path, *, relative_to: Path | None = None) -> Architecture:
    """Return the description of a preset, of a file (or its folder), or of a size such as `70b`.

    A path is relative to `relative_to`, the folder of the spec file that names it.
    """
    word = str(source).strip()
    if isinstance(source, str) and is_size(word):
        return _sized(word.lower())
    if isinstance(source, str) and is_preset(word.lower()):
        return _preset(word.lower())
    path = (relative_to or Path()) / word
    if isinstance(source, Path) or _is_there(path) or path.suffix == ".json":
        return architecture_of(read_config(path), str(path), _name(path))
    name = word.rsplit("/", 1)[-1].lower()
    close = perhaps(name, list_presets()) or _sized_part(name)
    raise SpecError(
        f"model {word!r}: not a preset, a path or a size.{close}"
        " Give a preset (llama-3.1-8b), the path to a config.json, or a size (70b)."
    )


def model_keys(source: str) -> Mapping[str, object]:
    """Return the keys of the model file that a preset, a path or a size stands for."""
    word = source.strip().lower()
    if is_size(word) and word not in NEWEST:
        return shape_of_size(word).config
    name = NEWEST.get(word, word)
    return load_preset(name).config if is_preset(name) else read_config(Path(source.strip()))


def architecture_of(config: Mapping[str, object], place: str, name: str) -> Architecture:
    """Return the description that a model file's keys give."""
    keys = Keys(config, place)
    known = family(keys.model_type, keys.class_name)
    notes: tuple[str, ...] = ()
    if known is None:
        known = GENERIC
    elif known != keys.model_type:
        notes = (f"read by the rule for {known!r}: the file's model_type is {keys.model_type!r}",)
    found = rule(known)(keys, name)
    refuse_unread_experts(keys)
    return replace(
        found, assumptions=(*notes, *found.assumptions, *_unread(keys), *_defaults(keys))
    )


@cache
def _preset(name: str) -> Architecture:
    preset = load_preset(name)
    return architecture_of(preset.config, f"preset {name!r} ({preset.source})", name)


def _sized(size: str) -> Architecture:
    if size in NEWEST:
        found = _preset(NEWEST[size])
        return replace(found, assumptions=(f"size {size!r} is {found.name}", *found.assumptions))
    shape = shape_of_size(size)
    note = (
        f"size {size!r} is a Llama-like shape of {shape.parameters:,} parameters:"
        f" {shape.layers} layers, hidden size {shape.hidden}, feed-forward {shape.width},"
        f" heads of {shape.head_dim}, {shape.kv_heads} key-value heads,"
        f" {'tied' if shape.tied else 'untied'} head"
    )
    found = architecture_of(shape.config, f"size {size!r}", f"llama-like-{size}")
    return replace(found, assumptions=(note, *found.assumptions))


def _sized_part(name: str) -> str:
    """Suggest the size that stands in a name such as 70b-instruct."""
    sizes = [part for part in re.split("[-_ ]", name) if is_size(part)]
    return f" Perhaps you meant {sizes[0]!r}?" if sizes else ""


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a null byte: no path
        return False


def _name(path: Path) -> str:
    """Return the folder's name for a `config.json`, else the file's own."""
    file = path / "config.json" if path.is_dir() else path
    return file.resolve().parent.name if file.name == "config.json" else file.stem


def _unread(keys: Keys) -> tuple[str, ...]:
    """Name the keys that would change the count if the family's class knew them."""
    unread = sorted(
        name
        for name in keys.mapping
        if name not in keys.used and keys.mapping[name] and any(word in name for word in TELLING)
    )
    return (f"not read by the rule, so not counted: {', '.join(unread)}",) if unread else ()


def _defaults(keys: Keys) -> tuple[str, ...]:
    """Say which keys the file left to the defaults of the model's class."""
    taken = [f"{name} = {value}" for name, value in keys.defaults.items() if value is not None]
    return (f"not in the file, the class's default: {', '.join(taken)}",) if taken else ()
