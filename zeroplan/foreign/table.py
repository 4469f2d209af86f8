"""What a key of a trainer's file means here: read, without bearing, or refused, with the reason.

Each format has one table of its keys. Reading, refusing and the page docs/files.md come from it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from zeroplan.errors import perhaps
from zeroplan.records import dataclass, field
from zeroplan.spec.reading import keys

__all__ = [
    "NAMES",
    "OFF",
    "WORD",
    "Entry",
    "Table",
    "idle",
    "joined",
    "likely",
    "nearest",
    "refused",
    "renamed",
    "same",
    "table",
]

Use = Literal["read", "joined", "idle", "refused", "renamed"]

WORD: Final[Any] = str | bool | int
"""A word, which YAML may have taken for a number or a truth value."""
NAMES: Final[Any] = str | list | bool
"""Names: a list of them, or a text."""

OFF: Final = (None, False, 0, 1, "none", "no", "")
"""Values with which a switch or a degree of parallelism asks for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of a trainer's file."""

    key: str
    """Dotted; a block without bearing, or refused, stands for all below it."""
    use: Use
    becomes: str = ""
    """The spec key, or several; for an old name the new one."""
    why: str = ""
    """How it is read, why it has no bearing, or why it is refused."""
    hint: Any = None
    """Type of the file's value."""
    words: Mapping[str, object] = field(default_factory=dict)
    """The file's words in lower case, and what each is here."""
    unless: tuple[object, ...] = ()
    """Refused: the values that ask for nothing."""


Table = Mapping[str, Entry]
"""The keys of a format by name."""


def same(
    key: str, becomes: str, why: str = "", words: Mapping[str, object] | None = None
) -> tuple[Entry, ...]:
    """Return a key that is one of the spec's under another name, or with other words."""
    entry = Entry(
        key=key, use="read", becomes=becomes, why=why, hint=keys()[becomes].hint, words=words or {}
    )
    return (entry,)


def joined(key: str, becomes: str, hint: Any, why: str) -> tuple[Entry, ...]:
    """Return a key that is read together with others; several spec keys are parted by commas."""
    return (Entry(key=key, use="joined", becomes=becomes, why=why, hint=hint),)


def idle(why: str, *names: str) -> tuple[Entry, ...]:
    """Return keys that change neither memory nor time."""
    return tuple(Entry(key=name, use="idle", why=why) for name in names)


def refused(why: str, *names: str, unless: tuple[object, ...] = OFF) -> tuple[Entry, ...]:
    """Return keys that ask for what is not modelled, unless their value asks for nothing."""
    return tuple(Entry(key=name, use="refused", why=why, unless=unless) for name in names)


def renamed(key: str, to: str, why: str = "an old name") -> tuple[Entry, ...]:
    """Return another name of a key."""
    return (Entry(key=key, use="renamed", becomes=to, why=why),)


def table(*groups: Iterable[Entry]) -> Table:
    """Return the table of a format; a key that stands in it twice is a mistake in the source."""
    entries = [entry for group in groups for entry in group]
    found = {entry.key: entry for entry in entries}
    if len(found) < len(entries):
        raise ValueError(sorted(e.key for e in entries if found[e.key] is not e))
    return found


def nearest(known: Table, key: str) -> Entry | None:
    """Return a key's entry, or that of the block which holds it and is settled as a whole."""
    if key in known:
        return known[key]
    while "." in key:
        key = key.rpartition(".")[0]
        if key in known and known[key].use in ("idle", "refused"):
            return known[key]
    return None


def likely(known: Table, key: str) -> str:
    """Suggest a key of the same block that looks like it."""
    block, _, name = key.rpartition(".")
    names = [each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == block]
    return perhaps(name, names)
