"""Dataclasses that are cheap to define, under the standard library's names.

A cold `estimate` may take twice as long as importing typer and pydantic, about 0.2 s. CPython 3.11
takes 0.6 ms for every frozen dataclass with slots, and there are more than a hundred on the way.
Here the standard library collects the fields and the methods are shared: 0.05 ms. Compiling a
constructor takes 0.1 ms more, and pays for those of which many are made: one class in four. Type
checkers see the standard decorator.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass, replace
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["dataclass", "field", "fields", "is_dataclass", "replace"]

FEW: Final = 16
"""Records of one class for which no constructor is compiled. [count]"""

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    T = TypeVar("T")

    def dataclass(
        cls: type[T] | None = None,
        /,
        *,
        frozen: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002 - the standard library's own name
        slots: bool = False,
        kw_only: bool = False,
    ) -> type[T] | Callable[[type[T]], type[T]]:
        """Define a dataclass as `dataclasses.dataclass` does; slots are an intention only."""
        del slots

        def define(cls: type[T]) -> type[T]:
            dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
            cls.__init__ = _init(cls)
            if repr:
                cls.__repr__ = _repr
            if frozen:
                cls.__setattr__ = cls.__delattr__ = _refuse
            if eq:
                cls._values = staticmethod(_values(cls))
                cls.__eq__ = _eq
                if "__hash__" not in vars(cls):
                    cls.__hash__ = _hash if frozen else None
            return cls

        return define if cls is None else define(cls)


def _init(cls: type) -> Callable[..., None]:
    """Return a constructor that makes way for a compiled one where many records are made."""
    made = count(1)

    def __init__(self: object, *values: object, **named: object) -> None:  # noqa: N807  # it is one
        if next(made) > FEW or not _fill(self, values, named):
            init = cls.__init__ = _compiled(cls)  # type: ignore[misc]
            init(self, *values, **named)

    return __init__


def _fill(record: Any, values: tuple[object, ...], named: dict[str, object]) -> bool:
    """Set the fields one by one; a wrong call is refused, for the compiled one says why."""
    entries = fields(record)
    plain = [entry.name for entry in entries if entry.init and not entry.kw_only]
    given = dict(zip(plain, values, strict=False)) | named
    if len(given) < len(values) + len(named):
        return False
    state = record.__dict__
    for entry in entries:
        if entry.init and entry.name in given:
            state[entry.name] = given.pop(entry.name)
        elif entry.default is not dataclasses.MISSING:
            state[entry.name] = entry.default
        elif entry.default_factory is not dataclasses.MISSING:
            state[entry.name] = entry.default_factory()
        elif entry.init:
            return False
    if given:
        return False
    if hasattr(record, "__post_init__"):
        record.__post_init__()
    return True


def _compiled(cls: type) -> Callable[..., None]:
    """Compile the only method that differs from class to class."""
    scope: dict[str, Any] = {"_missing": dataclasses.MISSING}
    plain: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for entry in fields(cls):
        name, default, made = entry.name, f"_default_{entry.name}", ""
        given = name
        if entry.default is not dataclasses.MISSING:
            scope[default] = entry.default
            made, given = default, given if entry.init else default
        elif entry.default_factory is not dataclasses.MISSING:
            scope[default] = entry.default_factory
            made = "_missing"
            given = (
                f"{default}() if {name} is _missing else {name}" if entry.init else f"{default}()"
            )
        elif not entry.init:
            continue
        if entry.init:
            (named if entry.kw_only else plain).append(f"{name}={made}" if made else name)
        body.append(f"    _state[{name!r}] = {given}")
    signature = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    after = ["    self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    lines = [f"def __init__({signature}):", "    _state = self.__dict__", *body, *after]
    exec("\n".join(lines), scope)  # noqa: S102 - as the standard library does
    init: Callable[..., None] = scope["__init__"]
    return init


def _values(cls: type) -> Callable[[Any], tuple[object, ...]]:
    names = [entry.name for entry in fields(cls) if entry.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *_: object) -> None:
    message = f"{type(self).__qualname__} is frozen: {name!r} cannot be assigned"
    raise dataclasses.FrozenInstanceError(message)


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._values(self) == self._values(other)


def _hash(self: Any) -> int:
    return hash(self._values(self))
