"""One training step as an ordered list of events: what memory and timing both read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from zeroplan.sharding.groups import Group
from zeroplan.units import Size
from zeroplan.workload.liveness import Change, Step

__all__ = ["Collective", "Event", "Phase", "Recorder", "Script", "Segment", "segment"]

Phase = Literal["forward", "backward", "optimizer"]
Stream = Literal["compute", "all-gather", "reduce-scatter", "all-reduce"]
CollectiveName = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One call as a `c10d` trace shows it on one rank."""

    name: CollectiveName
    group: Group
    input_bytes: Size
    output_bytes: Size

    @property
    def message_bytes(self) -> Size:
        """The whole that is gathered, reduced or sent: nccl-tests' size convention. [B]"""
        return self.input_bytes if self.name == "reduce_scatter" else self.output_bytes

    @property
    def wire_bytes(self) -> Size:
        """Sent per rank by the ring: (n-1)/n of the whole, twice that for an all-reduce. [B]"""
        passes = 2 if self.name == "all_reduce" else 1
        return passes * self.message_bytes * (self.group.ranks - 1) / self.group.ranks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """Operations run one after the other, shared by every block that runs the same ones."""

    steps: tuple[Step, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """One thing the framework issues."""

    name: str
    phase: Phase
    stream: Stream
    owner: str
    """The unit it belongs to: "block 7"."""
    changes: tuple[Change, ...] = ()
    """Bytes that come and go, in issue order."""
    steps: tuple[Step, ...] = ()
    """Operations that it computes."""
    collective: Collective | None = None
    traffic_bytes: Size = 0
    """HBM bytes of copies that no operation accounts for. [B]"""
    waits: tuple[int, ...] = ()
    """Events of other streams that must have ended before it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A step: what lives throughout, then every event in issue order."""

    resident: tuple[Change, ...]
    events: tuple[Event, ...]


@dataclass(slots=True)
class Recorder:
    """Collects events; an event's index is what later ones wait for."""

    phase: Phase = "forward"
    events: list[Event] = field(default_factory=list)

    def emit(
        self,
        name: str,
        owner: str,
        *,
        stream: Stream = "compute",
        changes: tuple[Change, ...] = (),
        steps: tuple[Step, ...] = (),
        collective: Collective | None = None,
        traffic_bytes: Size = 0,
        waits: Iterable[int] = (),
    ) -> int:
        """Append an event and return its index."""
        self.events.append(
            Event(
                name=name,
                phase=self.phase,
                stream=stream,
                owner=owner,
                changes=changes,
                steps=steps,
                collective=collective,
                traffic_bytes=traffic_bytes,
                waits=tuple(waits),
            )
        )
        return len(self.events) - 1

    def compute(self, name: str, owner: str, part: Segment, waits: Iterable[int] = ()) -> int:
        """Append a run of operations."""
        return self.emit(name, owner, changes=part.changes, steps=part.steps, waits=waits)


def segment(steps: Iterable[Step]) -> Segment:
    """Join steps into one segment."""
    steps = tuple(steps)
    return Segment(steps=steps, changes=tuple(c for step in steps for c in step.changes))
