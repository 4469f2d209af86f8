"""What two profiles of the same kind differ in."""

from zeroplan.hardware.profile import Profile, entries
from zeroplan.hardware.quantity import Choice, Quantity
from zeroplan.records import dataclass, fields, replace

__all__ = ["Difference", "differences"]

NAMES = ("id", "revision", "name")
"""What tells profiles apart; it differs and says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key of two profiles."""

    key: str
    before: Quantity | Choice | str | None
    """None where the first profile lacks it."""
    after: Quantity | Choice | str | None
    change: float | None
    """Second over first value, less 1, where both are numbers. [1]"""


def differences(first: Profile, second: Profile) -> tuple[Difference, ...]:
    """Return the keys whose value, kind, source or uncertainty differ, in the order of the file."""
    before, after = _values(first), _values(second)
    keys = dict.fromkeys([*before, *after])
    return tuple(
        Difference(
            key=key,
            before=before.get(key),
            after=after.get(key),
            change=_change(before.get(key), after.get(key)),
        )
        for key in keys
        if _without_note(before.get(key)) != _without_note(after.get(key))
    )


def _values(profile: Profile) -> dict[str, Quantity | Choice | str]:
    words: dict[str, Quantity | Choice | str] = {}
    for spec in fields(profile):
        value = getattr(profile, spec.name)
        if isinstance(value, str) and value and spec.name not in NAMES:
            words[spec.name] = value
    return words | dict(entries(profile))


def _without_note(value: Quantity | Choice | str | None) -> Quantity | Choice | str | None:
    return replace(value, note="") if isinstance(value, Quantity | Choice) else value


def _change(before: object, after: object) -> float | None:
    if isinstance(before, Quantity) and isinstance(after, Quantity):
        return after.value / before.value - 1
    return None
