"""From what a user wrote, in a file or on the command line, to a checked `Run`.

Both go the same way: plain values by dotted key, checked against the records of `run.py`. Pydantic
could do this, but building one model takes longer than all of `estimate` may take to start.
"""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeVar

from zeroplan.errors import SpecError, perhaps
from zeroplan.records import dataclass, fields, is_dataclass
from zeroplan.spec.hints import UnfitError, convert, describe, literals
from zeroplan.spec.run import (
    ClusterChoice,
    DeepSpeed,
    ModelChoice,
    Run,
    ShardingChoice,
    Shorthands,
    TrainingChoice,
    TuningChoice,
)
from zeroplan.spec.verify import verify

__all__ = ["PRECISIONS", "Key", "checked", "flatten", "keys", "read_run"]

PRECISIONS: Final = {
    "fp32": ("fp32", "fp32", "fp32"),
    "tf32": ("fp32", "tf32", "fp32"),
    "bf16-mixed": ("fp32", "bf16", None),
    "fp16-mixed": ("fp32", "fp16", None),
    "bf16": ("bf16", "bf16", "bf16"),
    "fp16": ("fp16", "fp16", "fp16"),
    "bf16-master": ("bf16", "bf16", "bf16"),
    "fp16-master": ("fp16", "fp16", "fp16"),
}
"""What `precision` sets parameter_dtype, compute_dtype and reduce_dtype to."""

_RECORDS: Final[tuple[tuple[str, type], ...]] = (
    ("model", ModelChoice),
    ("training", TrainingChoice),
    ("training", Shorthands),
    ("tuning", TuningChoice),
    ("sharding", ShardingChoice),
    ("sharding.deepspeed", DeepSpeed),
    ("cluster", ClusterChoice),
)

_LONGEST: Final = 60
"""Characters of a wrong value that a message repeats."""

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a spec file."""

    table: str
    name: str
    record: type
    """The record that holds it and whose source describes it."""
    hint: Any
    """Its type, as annotated there."""
    default: object
    """`dataclasses.MISSING` where there is none."""


@cache
def keys() -> dict[str, Key]:
    """Return every key of a spec file by its dotted name, in the order of the file."""
    return {
        f"{table}.{entry.name}": Key(
            table=table, name=entry.name, record=record, hint=entry.type, default=entry.default
        )
        for table, record in _RECORDS
        for entry in fields(record)
        if not is_dataclass(entry.type)
    }


def flatten(tables: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the values of nested tables by dotted key."""
    flat: dict[str, object] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def checked(values: Mapping[str, object], name: Callable[[str], str] = str) -> dict[str, object]:
    """Return the values with every key known, every value of its type, shorthands written out.

    Parameters
    ----------
    values
        Values by dotted key, as a TOML or JSON reader gives them.
    name
        How the user knows a key, for the message when it is wrong.

    """
    found = {dotted: _accepted(dotted, value, name(dotted)) for dotted, value in values.items()}
    precision = found.pop("training.precision", None)
    if precision is None:
        return found
    dtypes = ("parameter_dtype", "compute_dtype", "reduce_dtype")
    stands_for = zip(dtypes, PRECISIONS[str(precision)], strict=True)
    named: dict[str, object] = {f"training.{dtype}": value for dtype, value in stands_for}
    if str(precision).endswith("-master"):
        named["training.master_copy"] = True
    return named | found


def read_run(*layers: Mapping[str, object]) -> Run:
    """Return the run that checked values describe; a later layer wins over an earlier one."""
    values = {dotted: value for layer in layers for dotted, value in layer.items()}
    if "model.source" not in values:
        raise SpecError(
            "model.source is missing: name a preset, the path of a config.json, or a size (70b)."
        )
    deepspeed = _filled(DeepSpeed, values)
    return verify(
        Run(
            model=_filled(ModelChoice, values),
            training=_filled(TrainingChoice, values),
            tuning=_filled(TuningChoice, values),
            sharding=_filled(ShardingChoice, values, deepspeed=deepspeed),
            cluster=_filled(ClusterChoice, values),
        )
    )


def _filled(record: type[_Record], values: Mapping[str, object], **parts: object) -> _Record:
    given = {
        key.name: values[dotted]
        for dotted, key in keys().items()
        if key.record is record and dotted in values
    }
    return record(**given, **parts)


def _accepted(dotted: str, value: object, shown: str) -> object:
    key = keys().get(dotted)
    if any(dotted == table for table, _ in _RECORDS):
        raise SpecError(f"{shown}: a table; write [{dotted}] and its keys below it.")
    if key is None:
        raise SpecError(f"{shown}: unknown key.{_likely_key(dotted)}")
    try:
        return convert(key.hint, value)
    except UnfitError:
        likely = perhaps(str(value), literals(key.hint))
        raise SpecError(
            f"{shown} = {_shown(value)}: expected {describe(key.hint)}.{likely}"
        ) from None


def _likely_key(dotted: str) -> str:
    """Suggest a key: the same name in another table, else one that looks like it in any."""
    name = dotted.rpartition(".")[2]
    named = {key.name: known for known, key in keys().items()}
    likely = [name] if name in named else get_close_matches(name, named, n=1)
    return f" Perhaps you meant {named[likely[0]]!r}?" if likely else perhaps(dotted, keys())


def _shown(value: object) -> str:
    """Return a value as the user wrote it, cut where it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
