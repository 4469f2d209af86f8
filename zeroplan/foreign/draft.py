"""What reading a trainer's file gives, while it is read and afterwards."""

from collections.abc import Iterable, Mapping
from typing import Any

from zeroplan.errors import SpecError, UsageError
from zeroplan.records import dataclass, field
from zeroplan.spec.reading import checked, keys

__all__ = ["Asked", "Draft", "Ignored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known beside a file, by spec key."""

    flags: Mapping[str, object] = field(default_factory=dict)
    """Flags: they win over the file."""
    spec: Mapping[str, object] = field(default_factory=dict)
    """The spec file: the trainer's file wins over it, but may leave things to it."""
    files: Mapping[str, object] = field(default_factory=dict)
    """Trainers' files that were read before this one."""
    formats: frozenset[str] = frozenset()
    """Formats of all the files that are read together."""

    def value(self, key: str) -> Any:
        """Return what is known of a key; None where nothing is."""
        for layer in (self.flags, self.files, self.spec):
            if layer.get(key) is not None:
                return layer[key]
        return None


class Draft:
    """The spec that a trainer's file amounts to, as far as it has been read.

    It grows key by key; each value says where it came from.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.remarks: list[str] = []
        """What the user should look at, in words."""
        self.idle: dict[str, str] = {}
        """Keys without bearing, and why."""
        self.open: dict[str, str] = {}
        """Spec keys that the file leaves to somebody else, and what must be said."""

    def set(self, key: str, value: object, origin: str) -> None:
        """Set a spec key that follows from the file."""
        named = lambda _: f"{self.place}: {origin}: {key}"  # noqa: E731  # one use
        self.values |= checked({key: value}, named)
        self.origins[key] = origin
        self.open.pop(key, None)

    def default(self, key: str, why: str) -> Any:
        """Take zeroplan's own default of a key that the file should have, and say so."""
        value = keys()[key].default
        self.remark(f"{why}: {key} = {value}, zeroplan's default")
        return value

    def remark(self, text: str) -> None:
        """Note what the user should know."""
        if text not in self.remarks:
            self.remarks.append(text)

    def fault(self, text: str) -> SpecError:
        """Return the error for a file that cannot be used as it is."""
        return SpecError(f"{self.place}: {text}")


class Ignored:
    """The keys that --ignore names; it remembers which of them were there."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self.met: set[str] = set()

    def covers(self, key: str) -> bool:
        """Whether a key, a block that holds it, or its last word is named."""
        hits = {
            name
            for name in self.names
            if key == name or key.startswith(f"{name}.") or key.endswith(f".{name}")
        }
        self.met |= hits
        return bool(hits)

    def check(self) -> None:
        """Refuse a name that no file has: it is a slip, and what it means still counts."""
        for name in self.names:
            if name not in self.met:
                raise UsageError(f"--ignore {name}: no file that is read has such a key.")
