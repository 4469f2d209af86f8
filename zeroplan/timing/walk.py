"""One clock per stream: step time, exposed communication and the timeline fall out."""

from collections import Counter
from typing import Final, NamedTuple

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice
from zeroplan.compute.offload import OffloadPrice
from zeroplan.compute.price import Work, work
from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Collective, Event, Item, Repeat, Script, Transfer
from zeroplan.timing.host import NO_HOST, HostPrice
from zeroplan.units import Size, maximum, minimum
from zeroplan.workload.changes import Step

__all__ = ["Timing", "walk"]

SENDING: Final = ("all-gather", "reduce-scatter", "all-reduce")
"""Streams of collectives."""

HOST = "host"
"""Name of the clock of what issues the work."""

STEADY = 1e-10
"""Relative difference of clocks below which two copies of a block took equally long."""


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


@dataclass(frozen=True, slots=True)
class _Price:
    """What one event takes. [s]"""

    seconds: Size
    """On its stream without the collective: kernels and copies."""
    work: Work
    sent: Size
    issue: Size
    """On the host."""
    moved: Size
    """Outside the GPU's memory."""


class _Copy(NamedTuple):
    """What one copy of a repeat did. [s]"""

    advances: dict[str, Size]
    """Of the clocks that moved."""
    leads: list[Size]
    """At every wait, by how much the waiting stream was the later one."""


def _carried(earlier: _Copy, last: _Copy, left: int) -> list[Size]:
    """Carry the leads of two copies on to one that comes later.

    Copies with different numbers of waits (inner repeats that were cut short) go on evenly only
    where all clocks advance alike, which changes no lead.
    """
    if len(earlier.leads) != len(last.leads):
        return last.leads
    return [b + left * (b - a) for a, b in zip(earlier.leads, last.leads, strict=True)]


@dataclass(slots=True)
class _Walk:
    gpu: GpuPrice
    wires: Fabric
    host: HostPrice
    overlaps: bool
    fuses: bool
    offload: OffloadPrice | None
    """None where nothing that leaves the GPU takes time."""
    clocks: dict[str, Size] = field(default_factory=dict)
    """When each stream is free, and when what bears a mark has ended. [s]"""
    totals: Counter[str] = field(default_factory=Counter)
    """Seconds by kind: compute, matmuls, attention, host, communication, optimizer, offload."""
    leads: list[Size] = field(default_factory=list)
    """At every wait so far, by how much the waiting stream was the later one. [s]"""
    prices: dict[int, _Price] = field(default_factory=dict)
    of_steps: dict[int, Work] = field(default_factory=dict)
    """By identity: equal blocks share their steps."""
    of_collectives: dict[Collective, Size] = field(default_factory=dict)

    def step_seconds(self, script: Script) -> Size:
        """Run a step and return when the last stream is done. [s]"""
        self.run(script.items)
        step: Size = 0.0
        for clock in self.clocks.values():
            step = maximum(step, clock)
        return step

    def run(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, Event):
                self._pass(item)
            else:
                self._repeat(item)

    def _repeat(self, repeat: Repeat) -> None:
        """Run copies until the clocks advance evenly: from then on every copy takes as long."""
        outer, copies = self.leads, list[_Copy]()
        for left in reversed(range(repeat.times)):
            before, totals = dict(self.clocks), Counter(self.totals)
            self.leads = []
            self.run(repeat.items)
            copies.append(_Copy(self._advances(before), self.leads))
            outer += self.leads
            if left and len(copies) > 1 and self._evenly(copies[-2], copies[-1], left):
                for name, advance in copies[-1].advances.items():
                    self.clocks[name] += left * advance
                for kind, seconds in self.totals.items():
                    self.totals[kind] = seconds + left * (seconds - totals[kind])
                outer += _carried(copies[-2], copies[-1], left)
                break
        self.leads = outer

    def _advances(self, before: dict[str, Size]) -> dict[str, Size]:
        """Return by how much each clock that moved did so."""
        return {
            name: clock - before.get(name, 0.0)
            for name, clock in self.clocks.items()
            if clock is not before.get(name)
        }

    def _evenly(self, earlier: _Copy, last: _Copy, left: int) -> bool:
        """Whether clocks go on as in the last copy; numbers only, arrays go on.

        Their new values are maxima of sums of the old ones, so that equal advances stay equal; but
        for the first copy, which may catch up with a clock that stands still meanwhile. Advances
        that differ from clock to clock (streams that none waits for) repeat as long as no wait
        changes from the one that decides to the other, which is seen at the last copy.
        """
        moved, tolerance = last.advances.values(), STEADY * max(self.clocks.values())
        if not moved or max(moved) - min(moved) <= tolerance:
            return True
        return (
            earlier.advances.keys() == last.advances.keys()
            and len(earlier.leads) == len(last.leads)
            and all(
                abs(advance - earlier.advances[name]) <= tolerance
                for name, advance in last.advances.items()
            )
            and all(
                first * final >= 0
                for first, final in zip(earlier.leads, _carried(earlier, last, left), strict=True)
            )
        )

    def _pass(self, event: Event) -> None:
        price = self._price(event)
        stream = event.stream if self.overlaps else "compute"
        clocks = self.clocks
        ready = clocks.get(stream, 0.0)
        for name in event.waits:
            ready = self._later(ready, clocks.get(name, 0.0))
        line = "" if event.collective is None else f"communicator of {event.collective.group.name}"
        if line:
            ready = self._later(ready, clocks.get(line, 0.0) - price.seconds)
        begun = clocks.get(HOST, 0.0)
        issued = clocks[HOST] = begun + price.issue
        start = self._later(ready, begun)
        seconds = price.seconds + price.sent + price.moved
        if stream == "compute" and not line:
            seconds = seconds + self.gpu.overlap_slowdown * self._overlap(start, seconds)
        end = self._later(start + seconds, issued)
        clocks[stream] = end
        if line:
            clocks[line] = end
        if event.mark:
            clocks[event.mark] = end
        totals = self.totals
        if event.stream == "compute":
            totals["compute"] += end - ready - price.sent - price.moved
            totals["matmuls"] += price.work.matmul_seconds
            totals["attention"] += price.work.attention_seconds
            totals["host"] += end - ready - seconds
            if event.phase == "optimizer":
                totals["optimizer"] += price.seconds
        totals["communication"] += price.sent
        if event.transfer is not None or price.work.moved_bytes:
            totals["offload"] += price.moved
            if event.phase == "optimizer":
                totals["optimizer"] += price.moved

    def _overlap(self, start: Size, seconds: Size) -> Size:
        """Return how long collectives run beside kernels that start now. [s]"""
        busy = start
        for name in SENDING:
            if name in self.clocks:
                busy = self._later(busy, self.clocks[name])
        end = start + seconds
        self.leads.append(busy - end)
        return minimum(busy, end) - start

    def _later(self, clock: Size, other: Size) -> Size:
        """Return the later of two times and note by how much the first one is."""
        self.leads.append(clock - other)
        return maximum(clock, other)

    def _price(self, event: Event) -> _Price:
        known = self.prices.get(id(event))
        if known is None:
            done = self._work(event.steps)
            copied = event.traffic_bytes / self.gpu.bytes_per_second
            sent = 0.0 if event.collective is None else self._collective(event.collective)
            issue = self.host.issue_seconds(event, done)
            moved = self._moved(event.transfer, done.moved_bytes)
            known = _Price(done.seconds + copied, done, sent, issue, moved)
            self.prices[id(event)] = known
        return known

    def _moved(self, transfer: Transfer | None, activations_bytes: Size) -> Size:
        """Time of what leaves the GPU: an event's own transfer, and offloaded activations. [s]"""
        if self.offload is None:
            return 0.0
        rates = self.offload.bytes_per_second
        own = 0.0 if transfer is None else transfer.bytes / rates[transfer.route]
        return own + activations_bytes / rates["pinned copy"]

    def _work(self, steps: tuple[Step, ...]) -> Work:
        known = self.of_steps.get(id(steps))
        if known is None:
            known = self.of_steps[id(steps)] = work(steps, self.gpu, fuses=self.fuses)
        return known

    def _collective(self, collective: Collective) -> Size:
        known = self.of_collectives.get(collective)
        if known is None:
            known = collective_seconds(collective, self.wires)
            self.of_collectives[collective] = known
        return known


def walk(
    script: Script,
    gpu: GpuPrice,
    wires: Fabric,
    host: HostPrice = NO_HOST,
    *,
    overlaps: bool = True,
    fuses: bool = False,
    offload: OffloadPrice | None = None,
) -> Timing:
    """Run a script on one clock per stream, and one for the host that issues it.

    An event starts when its stream is free, what it waits for has ended and the host has come to
    it, and ends no earlier than its last kernel was issued. Each step begins with an idle host:
    training loops read the loss or the norm of the last one. A communicator runs one collective at
    a time, whatever streams they are on (pytorch#186335). Without overlap (gloo) collectives run on
    the compute stream. Compiled blocks fuse their memory-bound operations. What leaves the GPU is
    priced by `offload`; a second run without it shows how much of the waiting that is.
    """
    state = _Walk(gpu, wires, host, overlaps, fuses, offload)
    step, totals = state.step_seconds(script), state.totals
    waits: Size = 0.0
    if totals["offload"]:
        other = _Walk(gpu, wires, host, overlaps, fuses, None)
        waits = step - totals["compute"] - other.step_seconds(script) + other.totals["compute"]
        waits = maximum(0.0, waits)  # a copy can put off the kernels that a collective slows down
    return Timing(
        step_seconds=step,
        compute_seconds=totals["compute"],
        optimizer_seconds=totals["optimizer"],
        communication_seconds=totals["communication"],
        matmul_seconds=totals["matmuls"],
        attention_seconds=totals["attention"],
        host_seconds=totals["host"],
        offload_seconds=totals["offload"],
        exposed_offload_seconds=waits,
    )
