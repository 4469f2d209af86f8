"""Typed access to the keys of a model file: every bad value is refused here, once, in one line."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from zeroplan.errors import SpecError, perhaps
from zeroplan.units import GIGA

__all__ = ["MAX_WIDTH", "REQUIRED", "Keys"]

Default = TypeVar("Default")

MAX_WIDTH: Final = GIGA
"""No width, row count or number of layers of a model comes near. [elements]"""

REQUIRED: Final[Any] = object()
"""Default of a key that has none: its absence is an error."""


class Keys:
    """The keys of one object of a model file; null counts as absent.

    It remembers what was read and which defaults were taken, so that a rule need not report them.
    """

    def __init__(self, mapping: Mapping[str, object], place: str, path: str = "") -> None:
        self.mapping = mapping
        self.place = place
        self.path = path
        self.used: set[str] = {"model_type", "architectures"}
        self.defaults: dict[str, object] = {}

    @property
    def model_type(self) -> str:
        """Name of the family that the file states; empty where it states none."""
        value = self.mapping.get("model_type")
        return value if isinstance(value, str) else ""

    @property
    def class_name(self) -> str:
        """First of the file's `architectures`; empty where it states none."""
        value = self.mapping.get("architectures")
        return str(value[0]) if isinstance(value, list) and value else ""

    def has(self, name: str) -> bool:
        """Return whether the key is there and not null."""
        return self.mapping.get(name) is not None

    def mentions(self, name: str) -> bool:
        """Return whether the key is there, if only as null: some nulls switch a part off."""
        self.used.add(name)
        return name in self.mapping

    def integer(
        self,
        name: str,
        *aliases: str,
        default: Default = REQUIRED,
        minimum: int = 1,
        maximum: int = MAX_WIDTH,
    ) -> int | Default:
        """Return a whole number within bounds."""
        key, value = self._find((name, *aliases), default)
        if key is None:
            return default
        return self._whole(key, value, minimum, maximum)

    def size(self, name: str, *aliases: str, default: int, maximum: int = MAX_WIDTH) -> int:
        """Return a width that a file states and that only a nested object may leave to its class.

        transformers writes nested configurations sparse: what equals the class's default is left
        out (`PreTrainedConfig.to_diff_dict`, 5.24).
        """
        fallback = default if self.path else REQUIRED
        found: int = self.integer(name, *aliases, default=fallback, maximum=maximum)
        return found

    def number(
        self, name: str, *aliases: str, default: Default = REQUIRED, minimum: float = 0.0
    ) -> float | Default:
        """Return a finite number."""
        key, value = self._find((name, *aliases), default)
        if key is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(key, value, "write a number")
        if not minimum <= value <= MAX_WIDTH:  # also false for NaN
            raise self.fault(key, value, f"it lies between {minimum:g} and {MAX_WIDTH:g}")
        return float(value)

    def flag(self, name: str, *aliases: str, default: Default = REQUIRED) -> bool | Default:
        """Return true or false."""
        key, value = self._find((name, *aliases), default)
        if key is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(key, value, "write true or false")
        return value

    def text(self, name: str, *aliases: str, default: Default = REQUIRED) -> str | Default:
        """Return a string."""
        key, value = self._find((name, *aliases), default)
        if key is None:
            return default
        if not isinstance(value, str):
            raise self.fault(key, value, "write a string")
        return value

    def integers(
        self, name: str, *aliases: str, default: Default = REQUIRED, minimum: int = 0
    ) -> tuple[int, ...] | Default:
        """Return a list of whole numbers."""
        key, value = self._find((name, *aliases), default)
        if key is None:
            return default
        return tuple(self._whole(key, item, minimum, MAX_WIDTH) for item in self._list(key, value))

    def texts(
        self, name: str, *aliases: str, default: Default = REQUIRED
    ) -> tuple[str, ...] | Default:
        """Return a list of strings."""
        key, value = self._find((name, *aliases), default)
        if key is None:
            return default
        items = self._list(key, value)
        if not all(isinstance(item, str) for item in items):
            raise self.fault(key, value, "write a list of strings")
        return tuple(str(item) for item in items)

    def nested(self, name: str) -> "Keys":
        """Return the keys of an inner object; an absent one has none, so defaults apply."""
        value = self.mapping.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.fault(name, value, "write an object")
        return self._inner(name, value or {})

    def objects(self, name: str) -> tuple["Keys", ...]:
        """Return a list of inner objects, each with its own keys (per-block configurations)."""
        _, value = self._find((name,), REQUIRED)
        items = []
        for index, item in enumerate(self._list(name, value)):
            if not isinstance(item, Mapping):
                raise self.fault(f"{name}[{index}]", item, "write an object")
            items.append(self._inner(f"{name}[{index}]", item))
        return tuple(items)

    def fault(self, name: str, value: object, remedy: str) -> SpecError:
        """Return the error for a value that cannot be used."""
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."  # noqa: PLR2004 one line of text
        return SpecError(f"{self.place}: key {self.path + name!r}: value {shown}; {remedy}")

    def _inner(self, name: str, mapping: Mapping[str, object]) -> "Keys":
        self.used.add(name)
        inner = Keys(mapping, self.place, f"{self.path}{name}.")
        inner.defaults = self.defaults
        return inner

    def _find(self, names: tuple[str, ...], default: object) -> tuple[str | None, object]:
        """Return the first of the names that is present, and its value."""
        self.used.update(names)
        for name in names:
            if self.has(name):
                return name, self.mapping[name]
        if default is REQUIRED:
            wanted = " or ".join(repr(self.path + name) for name in names)
            unread = [key for key in self.mapping if key not in self.used]
            raise SpecError(f"{self.place}: key {wanted} is missing.{perhaps(names[0], unread)}")
        self.defaults[self.path + names[0]] = default
        return None, None

    def _list(self, key: str, value: object) -> list[object]:
        if not isinstance(value, list | tuple):
            raise self.fault(key, value, "write a list")
        return list(value)

    def _whole(self, key: str, value: object, minimum: int, maximum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(key, value, "write a whole number")
        if not minimum <= value <= maximum:
            raise self.fault(key, value, f"it lies between {minimum} and {maximum}")
        return value
