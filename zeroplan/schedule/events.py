"""One training step as an ordered list of events: what memory and timing both read."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from zeroplan.records import dataclass, field
from zeroplan.sharding.groups import Group
from zeroplan.sharding.offload import HostBuffer
from zeroplan.units import Size, some
from zeroplan.workload.changes import Category, Change, Step

__all__ = [
    "Collective",
    "CollectiveName",
    "Event",
    "Item",
    "Phase",
    "Pool",
    "Recorder",
    "Repeat",
    "Script",
    "Segment",
    "Stream",
    "Transfer",
    "collective",
    "segment",
]

Phase = Literal["forward", "backward", "optimizer"]
Pool = Literal["compute", "all-gather", "reduce-scatter"]
"""The stream whose memory pool a block comes from."""
Stream = Literal[
    "compute",
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "host to device",
    "device to host",
    "cpu",
]
"""cpu: what the host computes, and what it reads from a drive."""
Route = Literal["pinned copy", "pageable copy", "fused update", "update", "nvme"]
"""What bytes go through that leave the GPU: PCIe, the CPU's memory, a drive."""
CollectiveName = Literal[
    "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all"
]


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
        """Sent per rank by the ring: (n-1)/n of the whole, twice that for an all-reduce. [B]

        An all-to-all sends as much, straight to the other ranks.
        """
        passes = 2 if self.name == "all_reduce" else 1
        return passes * self.message_bytes * (self.group.ranks - 1) / self.group.ranks


def collective(
    name: CollectiveName, group: Group, sent: Size, kept: Size | None = None
) -> Collective | None:
    """Return a call of `sent` bytes in and `kept` bytes out, or as many; None for a lone rank."""
    if group.ranks == 1:
        return None
    out = sent if kept is None else kept
    return Collective(name=name, group=group, input_bytes=sent, output_bytes=out)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that one rank moves outside its GPU's memory."""

    route: Route
    bytes: Size


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
    """What it belongs to: "block 7", "root", "optimizer"."""
    block: int | None = None
    """Number of the block it belongs to, of the first copy where it is repeated."""
    changes: tuple[Change, ...] = ()
    """Bytes that come and go, in issue order."""
    steps: tuple[Step, ...] = ()
    """Operations that it computes."""
    collective: Collective | None = None
    traffic_bytes: Size = 0
    """HBM bytes of copies that no operation accounts for. [B]"""
    launches: Size = 0
    """Kernels that it launches and no operation accounts for."""
    transfer: Transfer | None = None
    waits: tuple[str, ...] = ()
    """Streams, or marks on them, whose work issued so far must have ended before it starts."""
    mark: str = ""
    """Name under which later events can wait for this one alone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat:
    """Items that happen several times over, as equal blocks or micro-steps do."""

    items: tuple["Event | Repeat", ...]
    times: int
    stride: int = 0
    """Blocks from one copy to the next; negative in backward. [blocks]"""
    micro_steps: bool = False
    """Whether the copies are whole micro-steps."""


Item = Event | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A step: what lives throughout, then every event in issue order."""

    resident: tuple[Change, ...]
    items: tuple[Item, ...]
    pools: Mapping[Category, Pool] = field(default_factory=dict)
    """Categories that are allocated on another stream than the compute stream."""
    host: tuple[HostBuffer, ...] = ()
    """What the rank holds in host memory throughout."""
    nvme_bytes: Size = 0
    """What the rank holds on a drive. [B]"""

    def calls(self) -> Iterator[tuple[Event, int]]:
        """Yield every event with the number of times it happens."""
        yield from _calls(self.items, 1)

    def unrolled(self) -> Iterator[tuple[Event, int | None]]:
        """Yield every event as often as it happens, in issue order, with its copy's block."""
        yield from _unrolled(self.items, 0)


def _unrolled(items: tuple[Item, ...], shift: int) -> Iterator[tuple[Event, int | None]]:
    for item in items:
        if isinstance(item, Event):
            yield item, None if item.block is None else item.block + shift
        else:
            for copy in range(item.times):
                yield from _unrolled(item.items, shift + copy * item.stride)


def _calls(items: tuple[Item, ...], times: int) -> Iterator[tuple[Event, int]]:
    for item in items:
        if isinstance(item, Event):
            yield item, times
        else:
            yield from _calls(item.items, times * item.times)


@dataclass(slots=True)
class Recorder:
    """Collects events in issue order."""

    phase: Phase = "forward"
    items: list[Item] = field(default_factory=list)
    block: int | None = None
    """The block whose events are being written."""

    @contextmanager
    def repeat(self, times: int, stride: int = 0, *, micro_steps: bool = False) -> Iterator[None]:
        """Repeat what is written inside."""
        outer, self.items = self.items, []
        yield
        inner = tuple(self.items)
        self.items = outer
        if times == 1:
            self.items.extend(inner)
        elif inner:
            self.items.append(
                Repeat(items=inner, times=times, stride=stride, micro_steps=micro_steps)
            )

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
        launches: Size = 0,
        transfer: Transfer | None = None,
        waits: tuple[str, ...] = (),
        mark: str = "",
    ) -> None:
        """Append an event, unless nothing happens in it."""
        done = changes or steps or collective or transfer or waits or mark
        if not (done or some(traffic_bytes)):
            return
        self.items.append(
            Event(
                name=name,
                phase=self.phase,
                stream=stream,
                owner=owner,
                block=self.block,
                changes=changes,
                steps=steps,
                collective=collective,
                traffic_bytes=traffic_bytes,
                launches=launches,
                transfer=transfer,
                waits=waits,
                mark=mark,
            )
        )

    def compute(self, name: str, owner: str, part: Segment) -> None:
        """Append a run of operations."""
        self.emit(name, owner, changes=part.changes, steps=part.steps)


def segment(steps: Iterable[Step]) -> Segment:
    """Join steps into one segment."""
    steps = tuple(steps)
    return Segment(steps=steps, changes=tuple(c for step in steps for c in step.changes))
