"""One clock per stream: step time, exposed communication and the timeline fall out."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice
from zeroplan.compute.offload import OffloadPrice
from zeroplan.compute.price import Works
from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Event, Item, Repeat, Script, Stream
from zeroplan.timing.host import NO_HOST, HostPrice
from zeroplan.timing.prices import EventPrice, Free, Prices
from zeroplan.timing.steady import Copy, carried, even_copies, moved_on, total
from zeroplan.units import Size, some

__all__ = ["HOST", "SENDING", "Span", "Timing", "Walk", "spans", "sums", "walk"]

SENDING: Final = ("all-gather", "reduce-scatter", "all-reduce")
"""Streams of collectives."""

HOST: Final = "host"
"""Name of the clock of what issues the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A step on the clock. [s]"""

    step_seconds: Size
    compute_seconds: Size
    """Kernels of the compute stream, copies and gaps until the host issues them included, waiting
    for other streams excluded."""
    optimizer_seconds: Size
    communication_seconds: Size
    """All collectives, one after the other."""
    matmul_seconds: Size
    """The part of the compute that matmuls take."""
    attention_seconds: Size
    """The part that fused attention takes."""
    host_seconds: Size
    """The part in which the compute stream has nothing to do, for the host has not issued it."""
    offload_seconds: Size = 0.0
    """Copies to and from the host, what the CPU computes, what a drive reads and writes."""
    exposed_offload_seconds: Size = 0.0
    """By how much longer the compute stream waits for that."""

    @property
    def exposed_communication_seconds(self) -> Size:
        """What the compute stream waits for. [s]"""
        return self.step_seconds - self.compute_seconds - self.exposed_offload_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where an event lies on the clock, from the start of the step. [s]"""

    event: Event
    block: int | None
    """Number of the block that it belongs to."""
    stream: Stream
    start_seconds: float
    end_seconds: float


@dataclass(slots=True)
class Walk:
    """Runs the items of a script, one event after the other."""

    prices: Mapping[Event, EventPrice]
    slowdown: float
    """Share by which kernels take longer beside a collective. [1]"""
    overlaps: bool
    clocks: dict[str, float] = field(default_factory=dict)
    """When each stream is free, and when what bears a mark has ended. [s]"""
    compute: float = 0.0
    """What the compute stream was busy so far, or waited for its host. [s]"""
    idle: float = 0.0
    """The part in which it waited for its host. [s]"""
    leads: list[float] = field(default_factory=list)
    """At every wait so far, by how much the waiting side was the later one. [s]"""
    leaps: list[tuple[int, int]] = field(default_factory=list)
    """Behind how many of these waits it leapt so far, and over how many copies. [count]"""

    @property
    def end(self) -> float:
        """When the last stream is done. [s]"""
        return max(self.clocks.values(), default=0.0)

    def run(self, items: tuple[Item, ...]) -> None:
        """Run items of a script one after the other, and of equal copies no more than it takes."""
        for item in items:
            if isinstance(item, Event):
                self.take(item)
            else:
                self._repeat(item)

    def _repeat(self, repeat: Repeat) -> None:
        """Run copies until those that follow advance the clocks as the last one did."""
        leads, leaps, left = self.leads, self.leaps, repeat.times
        earlier: Copy | None = None
        while left:
            before, compute, idle = dict(self.clocks), self.compute, self.idle
            self.leads, self.leaps = [], []
            self.run(repeat.items)
            busy, waited = self.compute - compute, self.idle - idle
            last = Copy(self._advances(before), self.leads, self.leaps, busy, waited)
            leaps += [(len(leads) + waits, copies) for waits, copies in last.leaps]
            leads += last.leads
            left -= 1
            if earlier and moved_on(last, self.clocks):
                earlier = last
            even = even_copies(earlier, last, self.clocks, left) if left and earlier else 0
            if earlier and even:
                for name, advance in last.advances.items():
                    self.clocks[name] += even * advance
                self.compute += total(earlier.compute, last.compute, even)
                self.idle += total(earlier.idle, last.idle, even)
                leaps.append((len(leads), even))
                leads += carried(earlier, last, even)
                left -= even
            earlier = None if even else last
        self.leads, self.leaps = leads, leaps

    def _advances(self, before: dict[str, float]) -> dict[str, float]:
        """Return by how much each clock that moved did so."""
        return {
            name: clock - before.get(name, 0.0)
            for name, clock in self.clocks.items()
            if clock != before.get(name)
        }

    def take(self, event: Event) -> tuple[float, float]:
        """Run an event; return when it starts and ends on its stream. [s]"""
        seconds, kernels, sent, moved, issue, line, _ = self.prices[event]
        clocks, later = self.clocks, self._later
        stream = event.stream if self.overlaps else "compute"
        ready = clocks.get(stream, 0.0)
        for name in event.waits:
            ready = later(ready, clocks.get(name, 0.0))
        if line:
            ready = later(ready, clocks.get(line, 0.0) - kernels)
        begun = clocks.get(HOST, 0.0)
        issued = clocks[HOST] = begun + issue
        start = later(ready, begun)
        if seconds and stream == "compute" and not line:
            seconds += self._slowdown(start, seconds)
        clocks[stream] = end = later(start + seconds, issued)
        if line:
            clocks[line] = end
        if event.mark:
            clocks[event.mark] = end
        if event.stream == "compute":
            self.compute += end - ready - sent - moved
            self.idle += end - ready - seconds
        return start, end

    def _slowdown(self, start: float, seconds: float) -> float:
        """Return by how much kernels take longer for the collectives that run beside them. [s]"""
        busy, end = start, start + seconds
        for name in SENDING:
            if name in self.clocks:
                busy = self._later(busy, self.clocks[name])
        self._later(busy, end)
        return self.slowdown * (min(busy, end) - start)

    def _later(self, clock: float, other: float) -> float:
        """Return the later of two times and note by how much the first one is."""
        lead = clock - other
        self.leads.append(lead)
        return clock if lead >= 0 else other


def walk(
    script: Script,
    gpu: GpuPrice,
    wires: Fabric,
    host: HostPrice = NO_HOST,
    *,
    overlaps: bool = True,
    fuses: bool = False,
    offload: OffloadPrice | None = None,
    works: Works | None = None,
    free: Free = frozenset(),
) -> Timing:
    """Run a script on one clock per stream, and one for the host that issues it.

    An event starts when its stream is free, what it waits for has ended and the host has come to
    it, and ends no earlier than its last kernel was issued. Each step begins with an idle host:
    training loops read the loss or the norm of the last one. A communicator runs one collective at
    a time, whatever streams they are on (pytorch#186335). Without overlap (gloo) collectives run on
    the compute stream. Compiled blocks fuse their memory-bound operations. What leaves the GPU is
    priced by `offload`; a second run without it shows how much of the waiting that is. Operations
    that other scripts have as well are taken from `works`, those of the same GPU. Collectives that
    are `free` take no time.
    """
    works = works or Works(gpu, fuses)
    prices = Prices(works, wires, host, offload, free)
    ran = _run(script, prices, overlaps=overlaps)
    step, kinds, waits = ran.end, sums(script.calls(), prices), 0.0
    del kinds["kernels_seconds"]
    if kinds["offload_seconds"]:
        other = _run(script, Prices(works, wires, host, None, free), overlaps=overlaps)
        waits = step - ran.compute - (other.end - other.compute)
        waits = max(0.0, waits)  # a copy can put off the kernels that a collective slows down
    return Timing(
        step_seconds=step,
        compute_seconds=ran.compute,
        host_seconds=ran.idle,
        exposed_offload_seconds=waits,
        **kinds,
    )


def spans(script: Script, prices: Prices, *, overlaps: bool = True) -> Iterator[Span]:
    """Run a script event by event, no copy skipped, and yield where each lies on the clock.

    The last end is the `step_seconds` of `walk`.
    """
    ran = _begun(prices, overlaps=overlaps)
    for event, block in script.unrolled():
        start, end = ran.take(event)
        ran.leads.clear()
        stream: Stream = event.stream if overlaps else "compute"
        yield Span(event=event, block=block, stream=stream, start_seconds=start, end_seconds=end)


def _run(script: Script, prices: Prices, *, overlaps: bool) -> Walk:
    walk = _begun(prices, overlaps=overlaps)
    walk.run(script.items)
    return walk


def _begun(prices: Prices, *, overlaps: bool) -> Walk:
    return Walk(prices, prices.works.gpu.overlap_slowdown, overlaps)


def sums(calls: Iterable[tuple[Event, int]], prices: Mapping[Event, EventPrice]) -> dict[str, Size]:
    """Seconds by kind of all that takes as long whenever it happens."""
    zero: Size = 0.0
    communication = offload = matmul = attention = optimizer = all_kernels = zero
    for event, times in calls:
        _, kernels, sent, moved, _, _, work = prices[event]
        if event.collective is not None:
            communication = communication + times * sent
        if event.transfer is not None or some(work.moved_bytes):
            offload = offload + times * moved
        on_gpu = event.stream == "compute"
        if on_gpu:
            all_kernels = all_kernels + times * kernels
        if on_gpu and event.steps:
            matmul = matmul + times * work.matmul_seconds
            attention = attention + times * work.attention_seconds
        if event.phase == "optimizer":
            optimizer = optimizer + times * (moved + kernels * on_gpu)
    return {
        "communication_seconds": communication,
        "offload_seconds": offload,
        "matmul_seconds": matmul,
        "attention_seconds": attention,
        "optimizer_seconds": optimizer,
        "kernels_seconds": all_kernels,
    }
