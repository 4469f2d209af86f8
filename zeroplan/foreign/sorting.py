"""Every key of a file to its place: read, without bearing, refused, or not understood."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.foreign.draft import Draft, Ignored
from zeroplan.foreign.table import NAMES, OFF, WORD, Entry, Table, likely, nearest
from zeroplan.records import dataclass
from zeroplan.spec.hints import UnfitError, convert, describe

__all__ = ["AUTO", "Found", "sort_out"]

AUTO: Final = "auto"

PARALLEL: Final = re.compile(
    r"(tensor|pipeline|context|expert|sequence)_?(model_)?_?parallel|ulysses|ring_attn|ring_attention|"
    r"(^|[._])(tp|pp|cp|ep|sp)_?(size|degree)?$|autotp|packing|padding_free|fp8|float8|mxfp|nvfp4"
)
"""Names that ask for what changes the count, whatever file they stand in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The keys that a format's own rules read together, by name."""

    values: Mapping[str, Any]
    autos: frozenset[str]
    """Keys that are left to the trainer ("auto")."""
    every: frozenset[str]
    """Every key of the file that its table knows."""

    def get(self, key: str) -> Any:
        """Return a key's value; None where it is absent, null or left to the trainer."""
        return self.values.get(key)

    def says(self, key: str) -> bool:
        """Whether the file states the key, if only as "auto"."""
        return key in self.values or key in self.autos


def sort_out(given: Mapping[str, Any], known: Table, draft: Draft, ignored: Ignored) -> Found:
    """Settle every key of a file with its table.

    Parameters
    ----------
    given
        Values by dotted key.
    known
        The format's table.
    draft
        Takes what is read without further rules, and what is to be said.
    ignored
        Keys that the user wants left out.

    Raises
    ------
    SpecError
        A key asks for what is not modelled, or its value is not of its type.

    """
    values: dict[str, Any] = {}
    autos: set[str] = set()
    origin: dict[str, str] = {}
    for written, value in given.items():
        if ignored.covers(written):
            draft.remark(f"{written} = {_shown(value)} is left out, as --ignore asks")
            continue
        entry = _settled(written, value, given, known, draft)
        if entry is None or value is None:
            continue
        _once(written, entry.key, origin, draft)
        if value == AUTO:
            autos.add(entry.key)
        else:
            values[entry.key] = _value(written, value, entry, draft)
    for key, value in values.items():
        if known[key].use == "read":
            written = origin[key]
            draft.set(known[key].becomes, value, f"{written} = {_shown(given[written])}")
    return Found(values=values, autos=frozenset(autos), every=frozenset(origin))


def _settled(
    written: str, value: object, given: Mapping[str, Any], known: Table, draft: Draft
) -> Entry | None:
    """Return the entry of a key that is to be read; one that is not has been dealt with."""
    entry = nearest(known, written)
    if entry is not None and entry.use == "renamed":
        draft.remark(f"{written} is {entry.why}: read as {entry.becomes}")
        entry = known[entry.becomes]
    if entry is None:
        _unknown(written, value, known, draft)
    elif entry.use == "idle":
        draft.idle[written] = entry.why
    elif entry.use == "refused":
        if not (_switched_off(written, given) or _asks_nothing(value, entry.unless)):
            raise _refusal(written, value, entry, draft)
        draft.idle[written] = "asks for nothing"
    else:
        return entry
    return None


def _once(written: str, key: str, origin: dict[str, str], draft: Draft) -> None:
    if key in origin:
        raise draft.fault(f"{written} and {origin[key]} are the same key: leave one of them out.")
    origin[key] = written


def _unknown(key: str, value: object, known: Table, draft: Draft) -> None:
    """List a key that the table lacks, or refuse it where its name tells of another parallelism."""
    if PARALLEL.search(key.lower()) and not _asks_nothing(value, OFF):
        raise draft.fault(
            f"{key} = {_shown(value)}: not modelled, and it may change every figure. Leave it out, "
            f"or pass --ignore {key}."
        )
    draft.remark(f"{key} = {_shown(value)} is not understood and left out.{likely(known, key)}")


def _refusal(key: str, value: object, entry: Entry, draft: Draft) -> SpecError:
    whole = entry.key if key.startswith(f"{entry.key}.") else key
    return draft.fault(
        f"{key} = {_shown(value)}: {entry.why}. Leave it out, or pass --ignore {whole} to estimate "
        "without it."
    )


def _switched_off(key: str, given: Mapping[str, Any]) -> bool:
    """Whether a block that holds the key says `enabled: false`."""
    blocks = [key[: found.start()] for found in re.finditer(r"[.]", key)]
    return any(
        given.get(f"{block}.{name}") is False for block in blocks for name in ("enabled", "enable")
    )


def _asks_nothing(value: object, unless: tuple[object, ...]) -> bool:
    plain = _plain(value)
    return any(type(plain) is type(each) and plain == each for each in unless) or plain in ([], {})


def _value(written: str, value: object, entry: Entry, draft: Draft) -> object:
    """Return a value of its key's type: 5e8 is a whole number, and so is "500000000"."""
    plain = _plain(value)
    if entry.words:
        word = str(plain).lower()
        if word not in entry.words:
            known = ", ".join(entry.words)
            raise draft.fault(f"{written} = {_shown(value)}: expected one of {known}.")
        return entry.words[word]
    try:
        return convert(entry.hint, plain)
    except UnfitError:
        raise draft.fault(
            f"{written} = {_shown(value)}: expected {_expected(entry.hint)}."
        ) from None


def _expected(hint: Any) -> str:
    return {WORD: "a word", NAMES: "names", list: "a list"}.get(hint) or describe(hint)


def _plain(value: object) -> object:
    """Return the number or the truth value that a text spells: YAML 1.1 leaves 5e8 a text."""
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except (ValueError, OverflowError):
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() else number


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  one line of text
