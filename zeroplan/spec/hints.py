"""What the type of a key admits: reading, checking and describing values by their annotation."""

import json
import re
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from zeroplan.spec.words import Pattern, Range

__all__ = [
    "AUTO",
    "UnfitError",
    "convert",
    "describe",
    "has_commas",
    "kind",
    "literals",
    "parse",
    "spelled",
]

AUTO: Final = "auto"
"""How files, flags and JSON spell None."""

_KINDS: Final = {bool: "BOOL", int: "N", float: "X", str: "TEXT"}
_PLAIN: Final = {NoneType: AUTO, bool: "true or false", str: "text"}


class UnfitError(ValueError):
    """A value is not of its key's type."""


def convert(hint: Any, value: Any) -> object:
    """Return the value as the annotation has it: "auto" as None, 5e8 as a whole number.

    Raises
    ------
    UnfitError
        If the annotation does not admit it.

    """
    choices = _choices(hint)
    if value == AUTO and NoneType in choices:
        return None
    for choice in choices:
        base, bounds = _split(choice)
        fitted = int(value) if base is int and _is_whole_float(value) else value
        if _is(base, fitted) and _within(bounds, fitted):
            return float(fitted) if base is float else fitted
    raise UnfitError


def parse(hint: Any, text: str) -> object:
    """Return a flag's text as the value that a file would hold; text that is no value stays text."""
    if all(_split(choice)[0] in (str, NoneType) for choice in _choices(hint)):
        return text
    try:
        return json.loads(text.lower())
    except ValueError:
        return text


def describe(hint: Any) -> str:
    """Return in words what the annotation admits."""
    return " or ".join(_words(*_split(choice)) for choice in _choices(hint))


def literals(hint: Any) -> list[str]:
    """Return the words that the annotation admits."""
    words = [word for choice in _choices(hint) for word in _literal(choice)]
    return [*words, AUTO] if NoneType in _choices(hint) else words


def kind(hint: Any) -> str:
    """Return the sort of value as one word of a help page; BOOL where a switch will do."""
    bases = [_split(choice)[0] for choice in _choices(hint)]
    return next((word for base, word in _KINDS.items() if base in bases), "WORD")


def has_commas(hint: Any) -> bool:
    """Whether one value of the annotation may be several names with commas between them."""
    bounds = (_split(choice)[1] for choice in _choices(hint))
    return any(isinstance(each, Pattern) and re.fullmatch(each.regex, "a,b") for each in bounds)


def spelled(value: object) -> str:
    """Return a value as files and flags spell it."""
    if isinstance(value, bool):
        return str(value).lower()
    return AUTO if value is None else str(value)


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _split(choice: Any) -> tuple[Any, Range | Pattern | None]:
    """Return the base type of one alternative and what bounds it."""
    if get_origin(choice) is Annotated:
        base, bounds = get_args(choice)
        return base, bounds
    return choice, None


def _literal(choice: Any) -> tuple[str, ...]:
    return get_args(choice) if get_origin(choice) is Literal else ()


def _is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _is(base: Any, value: object) -> bool:
    if get_origin(base) is Literal:
        return isinstance(value, str) and value in get_args(base)
    if base is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is base


def _within(bounds: Range | Pattern | None, value: Any) -> bool:
    if isinstance(bounds, Range):
        return bool(bounds.low <= value <= bounds.high)
    return bounds is None or re.fullmatch(bounds.regex, value) is not None


def _words(base: Any, bounds: Range | Pattern | None) -> str:
    if isinstance(bounds, Pattern):
        return bounds.words
    if isinstance(bounds, Range):
        kind = "a whole number" if base is int else "a number"
        return f"{kind} from {bounds.low:,} to {bounds.high:,}"
    return _PLAIN.get(base) or "one of " + ", ".join(_literal(base))
