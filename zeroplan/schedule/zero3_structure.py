"""What ZeRO-3's parameter coordinator is asked and answers."""

from functools import cached_property
from typing import Literal, NamedTuple

from zeroplan.records import dataclass

__all__ = ["Action", "Actions", "Course", "Hook", "Lap", "Laps", "Structure"]


class Hook(NamedTuple):
    """A module is about to run (fetch), or has run (release), forward or backward."""

    fetch: bool
    parameters: tuple[int, ...] = ()
    """Places of the parameters that it holds itself."""
    module: int = 0
    """Number of the module in its unit."""
    unit: int = -1
    """The model itself is in none."""
    recomputed: tuple[int, ...] = ()
    """Places of frozen parameters that a recomputation brought, which now go."""


class Lap(NamedTuple):
    """Hooks that fire several times over, as those of equal blocks do."""

    hooks: tuple[Hook, ...]
    """Of the first copy."""
    times: int = 1
    start: int = 0
    """Place of the first copy's first parameter."""
    shift: int = 0
    """Places from one copy to the next, as many as a copy has; negative in backward."""

    def own(self, copy: int) -> range:
        """Return the places of a copy."""
        start = self.start + copy * self.shift
        return range(start, start + abs(self.shift))

    def ahead(self, copy: int) -> range:
        """Return the places of a copy and of all that come after it."""
        first, last = self.own(copy), self.own(self.times - 1)
        return range(min(first.start, last.start), max(first.stop, last.stop))


class Action(NamedTuple):
    """What the coordinator does to parameters, known by their places."""

    kind: Literal["gather", "take", "await", "drop", "keep", "release"]
    """gather: issue an all-gather; take: copy its parameters out; drop: its flat buffer goes;
    await: the compute stream waits for all gathers so far; keep: secondary shards are made of what
    is about to go; release: the parameters go."""
    parameters: tuple[int, ...] = ()
    alone: tuple[bool, ...] = ()
    """Of what is released: whether it was gathered by itself."""
    secondary: bool = False
    """Whether a gather reads the secondary shards (hpZ)."""


class Actions(NamedTuple):
    """What is done in copies of a lap that follow one another."""

    by_hook: tuple[tuple[Action, ...], ...]
    """Places are those of the first of these copies."""
    times: int = 1


Laps = tuple[tuple[Actions, ...], ...]
"""What is done in a micro-step, by lap, and last of all at the end of backward."""


class Course(NamedTuple):
    """What happens in a step."""

    micro_steps: tuple[Laps, ...]
    left: tuple[Action, ...]
    """Release of what is there after the last backward."""


@dataclass(frozen=True, kw_only=True)
class Structure:
    """Everything that the coordinator's decisions depend on."""

    elements: tuple[int, ...]
    """Of each parameter. [elements]"""
    laps: tuple[Lap, ...]
    """Of one micro-step, in the order in which they run."""
    micro_steps: int
    prefetch_bucket: int
    max_live: int
    max_reuse_distance: int
    persistence_threshold: int
    secondary: bool = False
    """Whether a released parameter leaves a shard for the next gathers of the step (hpZ)."""

    @cached_property
    def persistent(self) -> frozenset[int]:
        """Parameters that are gathered after each optimizer step and never released."""
        limit = self.persistence_threshold
        return frozenset(p for p, size in enumerate(self.elements) if size <= limit)
