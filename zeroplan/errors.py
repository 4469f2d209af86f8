"""The faults that a user can mend, one class per exit code."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "INTERRUPTED",
    "MissingPartError",
    "RunError",
    "SpecError",
    "UsageError",
    "ZeroplanError",
    "perhaps",
]

INTERRUPTED: Final = 130
"""Exit code of a command that Ctrl-C ended, as shells have it."""


class ZeroplanError(Exception):
    """Anything the user can mend: the message names the place, the value and the remedy."""

    exit_code: ClassVar[int] = 1


class UsageError(ZeroplanError):
    """The command line does not say what to do."""

    exit_code = 2


class SpecError(ZeroplanError):
    """A spec file, model file or hardware profile is wrong or asks for what is not modelled."""

    exit_code = 3


class MissingPartError(ZeroplanError):
    """An optional part (torch, a GPU) is needed and absent."""

    exit_code = 6


class RunError(ZeroplanError):
    """A real step broke off: a process died, or there was no answer in time."""


def perhaps(word: str, known: "Iterable[str]") -> str:
    """Return " Perhaps you meant 'x'?" when a known word is close, else an empty string."""
    lowered = {name.lower(): name for name in known}
    matches = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f" Perhaps you meant {lowered[matches[0]]!r}?" if matches else ""
