"""One clock per stream: step time, exposed communication and the timeline fall out."""

from collections import Counter

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice
from zeroplan.compute.price import Work, work
from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Collective, Event, Item, Repeat, Script
from zeroplan.units import Size, maximum
from zeroplan.workload.changes import Step

__all__ = ["Timing", "walk"]

STEADY = 1e-14
"""Relative difference of clocks below which two copies of a block took equally long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A step on the clock. [s]"""

    step_seconds: Size
    compute_seconds: Size
    """Kernels of the compute stream, copies included, waiting excluded."""
    optimizer_seconds: Size
    communication_seconds: Size
    """All collectives, one after the other."""
    matmul_seconds: Size
    """The part of the compute that matmuls take."""
    attention_seconds: Size
    """The part that fused attention takes."""

    @property
    def exposed_communication_seconds(self) -> Size:
        """What the compute stream waits for. [s]"""
        return self.step_seconds - self.compute_seconds


@dataclass(frozen=True, slots=True)
class _Price:
    """What one event takes. [s]"""

    seconds: Size
    """On its stream without the collective: kernels and copies."""
    work: Work
    sent: Size


@dataclass(slots=True)
class _Walk:
    gpu: GpuPrice
    wires: Fabric
    overlaps: bool
    clocks: dict[str, Size] = field(default_factory=dict)
    """When each stream is free, and when what bears a mark has ended. [s]"""
    totals: Counter[str] = field(default_factory=Counter)
    """Seconds by kind: compute, matmuls, attention, communication, optimizer."""
    prices: dict[int, _Price] = field(default_factory=dict)
    of_steps: dict[int, Work] = field(default_factory=dict)
    """By identity: equal blocks share their steps."""
    of_collectives: dict[Collective, Size] = field(default_factory=dict)

    def run(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, Event):
                self._pass(item)
            else:
                self._repeat(item)

    def _repeat(self, repeat: Repeat) -> None:
        """Run copies until all clocks advance alike: from then on every copy takes as long.

        The clocks' new values are maxima of sums of the old ones, so equal advances stay equal. But
        for the first copy, which may catch up with a clock that stands still meanwhile.
        """
        for done in range(1, repeat.times + 1):
            before, totals = dict(self.clocks), Counter(self.totals)
            self.run(repeat.items)
            left = repeat.times - done
            if left and done > 1 and self._steady(before):
                for name, clock in self.clocks.items():
                    self.clocks[name] = clock + left * (clock - before.get(name, 0.0))
                for kind, seconds in self.totals.items():
                    self.totals[kind] = seconds + left * (seconds - totals[kind])
                return

    def _steady(self, before: dict[str, Size]) -> bool:
        """Whether all clocks that moved did so by the same; numbers only, arrays go on."""
        moved = [
            clock - before.get(name, 0.0)
            for name, clock in self.clocks.items()
            if clock is not before.get(name)
        ]
        latest = max(self.clocks.values())
        return bool(max(moved) - min(moved) <= STEADY * latest)

    def _pass(self, event: Event) -> None:
        price = self._price(event)
        stream = event.stream if self.overlaps else "compute"
        clocks = self.clocks
        start = clocks.get(stream, 0.0)
        for name in event.waits:
            start = maximum(start, clocks.get(name, 0.0))
        clocks[stream] = start + price.seconds + price.sent
        if event.mark:
            clocks[event.mark] = clocks[stream]
        totals = self.totals
        if event.stream == "compute":
            totals["compute"] += price.seconds
            totals["matmuls"] += price.work.matmul_seconds
            totals["attention"] += price.work.attention_seconds
            if event.phase == "optimizer":
                totals["optimizer"] += price.seconds
        totals["communication"] += price.sent

    def _price(self, event: Event) -> _Price:
        known = self.prices.get(id(event))
        if known is None:
            done = self._work(event.steps)
            copied = event.traffic_bytes / self.gpu.bytes_per_second
            sent = 0.0 if event.collective is None else self._collective(event.collective)
            known = self.prices[id(event)] = _Price(done.seconds + copied, done, sent)
        return known

    def _work(self, steps: tuple[Step, ...]) -> Work:
        known = self.of_steps.get(id(steps))
        if known is None:
            known = self.of_steps[id(steps)] = work(steps, self.gpu)
        return known

    def _collective(self, collective: Collective) -> Size:
        known = self.of_collectives.get(collective)
        if known is None:
            known = collective_seconds(collective, self.wires)
            self.of_collectives[collective] = known
        return known


def walk(script: Script, gpu: GpuPrice, wires: Fabric, *, overlaps: bool = True) -> Timing:
    """Run a script on one clock per stream.

    An event starts when its stream is free and what it waits for has ended. Without overlap
    (gloo) collectives run on the compute stream.
    """
    state = _Walk(gpu, wires, overlaps)
    state.run(script.items)
    step: Size = 0.0
    for clock in state.clocks.values():
        step = maximum(step, clock)
    totals = state.totals
    return Timing(
        step_seconds=step,
        compute_seconds=totals["compute"],
        optimizer_seconds=totals["optimizer"],
        communication_seconds=totals["communication"],
        matmul_seconds=totals["matmuls"],
        attention_seconds=totals["attention"],
    )
