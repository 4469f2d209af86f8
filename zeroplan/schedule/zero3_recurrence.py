"""Where ZeRO-3's coordinator does to one equal block what it did to the one before.

It looks ahead from where it is and remembers what it holds. Where a copy of a block finds all of
that as its predecessor did, seen from itself, it acts alike, and leaves the same to the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.records import dataclass, field
from zeroplan.schedule.zero3_structure import Lap
from zeroplan.units import ceil_div

__all__ = ["Kept", "Limits", "Situation", "State", "Track", "Use", "advance", "alike", "situation"]


Kept = tuple[frozenset[tuple[int, bool]], frozenset[int]]
Use = tuple[int, int]
"""A parameter in the trace, and the fetch that needs it."""


class Track(NamedTuple):
    """A lap, and where it lies in the trace."""

    lap: Lap
    first_use: int
    uses: int
    """Of one copy."""
    first_step: int
    fetches: int
    """Of one copy."""


@dataclass(slots=True)
class State:
    """What the coordinator knows; names follow DeepSpeed's."""

    available: dict[int, bool] = field(default_factory=dict)
    """Parameters that are there, and whether they were gathered by themselves."""
    in_flight: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Parameters being gathered, with all that came in the same all-gather."""
    gathering: bool = False
    """Whether an all-gather was issued that the compute stream has not waited for."""
    n_available: int = 0
    step_id: int = 0
    active: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    """Modules that are using a parameter."""
    queued: int = 0
    """Place in the trace up to which prefetches have come."""
    fetched_for: dict[int, int] = field(default_factory=dict)
    """Last fetch for which a parameter was gathered or found there: what `queued` has passed."""
    secondary: set[int] = field(default_factory=set)
    """Parameters with a secondary shard, until the end of the step (hpZ)."""

    @property
    def kept(self) -> Kept:
        """What the next micro-step finds, to tell whether it goes like another one."""
        return frozenset(self.available.items()), frozenset(self.secondary)

    def between(self) -> "State":
        """Return the state in which the next micro-step starts."""
        return State(available=dict(self.available), secondary=set(self.secondary))


class Situation(NamedTuple):
    """What a copy finds, with places as its lap's first copy would see them."""

    ahead: dict[int, bool]
    """Available parameters of this copy and of later ones."""
    ahead_secondary: set[int]
    """Those that have a secondary shard."""
    outside: dict[int, bool]
    """Available parameters of other laps."""
    outside_secondary: set[int]
    in_flight: dict[int, tuple[int, ...]]
    gathering: bool
    queued: int
    n_available: int


class Limits(NamedTuple):
    """What keeps a prefetch from looking further ahead."""

    drained: bool
    """Whether nothing is left to prefetch."""
    bucket: int
    """[elements]"""
    room: int
    """The least room under the live limit that a prefetch of the last copy found. [elements]"""


def situation(state: State, track: Track, copy: int) -> Situation | None:
    """Return what a copy finds; None if that reaches out of its lap."""
    lap, offset = track.lap, copy * track.lap.shift
    ahead, everything = lap.ahead(copy), lap.ahead(0)
    together = {p for group in state.in_flight.values() for p in group}
    if not (
        all(p in ahead for p in state.in_flight)
        and all(p in everything for p in together)
        and all(p not in ahead for p in state.active)
    ):
        return None
    return Situation(
        ahead={p - offset: alone for p, alone in state.available.items() if p in ahead},
        ahead_secondary={p - offset for p in state.secondary if p in ahead},
        outside={p: alone for p, alone in state.available.items() if p not in everything},
        outside_secondary={p for p in state.secondary if p not in everything},
        in_flight={
            p - offset: tuple(q - offset for q in group) for p, group in state.in_flight.items()
        },
        gathering=state.gathering,
        queued=state.queued - track.first_use - copy * track.uses,
        n_available=state.n_available,
    )


def alike(before: Situation, now: Situation, track: Track, copy: int, limits: Limits | None) -> int:
    """Return how many copies from this one on go like the one before [count].

    Parameters
    ----------
    before, now
        What the copy before and this one find.
    track, copy
        Which copy this one is.
    limits
        Of prefetches, if there are any.

    """
    lap = track.lap
    ahead, offset = lap.ahead(copy), copy * lap.shift
    seen = {p: alone for p, alone in before.ahead.items() if p + offset in ahead}
    seen_secondary = {p for p in before.ahead_secondary if p + offset in ahead}
    if (seen, seen_secondary) != now[:2] or before[2:6] != now[2:6]:
        return 0
    copies = lap.times - copy
    if limits is None:
        return copies
    stays = limits.drained and before.queued == now.queued + track.uses
    if not stays:
        if before.queued != now.queued or now.queued < 0:
            return 0
        if track.uses:
            copies -= ceil_div(now.queued, track.uses)
    rise = now.n_available - before.n_available
    if rise and limits.room < limits.bucket:
        return 0
    if rise > 0:
        copies = min(copies, (limits.room - limits.bucket) // rise)
    return max(0, copies)


def advance(state: State, track: Track, copy: int, copies: int, trace: Sequence[Use]) -> None:
    """Skip copies, this one and on, that go like the one before."""
    lap, by = track.lap, copies * track.lap.shift
    own, ahead = lap.own(copy - 1), lap.ahead(copy)
    coming = {p: alone for p, alone in state.available.items() if p in ahead}
    for p in coming:
        del state.available[p]
    for skipped in range(lap.shift, by + lap.shift, lap.shift):
        state.available |= {p + skipped: state.available[p] for p in own if p in state.available}
        state.active |= {p + skipped: state.active[p] for p in own if p in state.active}
        state.secondary |= {p + skipped for p in own if p in state.secondary}
    state.available |= {p + by: alone for p, alone in coming.items() if p + by in ahead}
    shifted = {id(group): tuple(p + by for p in group) for group in state.in_flight.values()}
    state.in_flight = {p + by: shifted[id(group)] for p, group in state.in_flight.items()}
    passed = min(len(trace), state.queued + copies * track.uses)
    state.fetched_for |= trace[state.queued : passed]
    state.queued = passed
    state.step_id += copies * track.fetches
