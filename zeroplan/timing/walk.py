"""One clock per stream: step time, exposed communication and the timeline fall out."""

from collections import defaultdict
from dataclasses import dataclass

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.price import GpuPrice, step_seconds
from zeroplan.schedule.events import Collective, Event, Script
from zeroplan.units import Size, maximum
from zeroplan.workload.liveness import Step

__all__ = ["Span", "Timing", "walk"]


@dataclass(frozen=True, slots=True)
class Span:
    """When an event runs. [s]"""

    event: Event
    start: Size
    end: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A step on the clock. [s]"""

    spans: tuple[Span, ...]
    step_seconds: Size
    compute_seconds: Size
    """Kernels of the compute stream, copies included, waiting excluded."""
    optimizer_seconds: Size
    communication_seconds: Size
    """All collectives, one after the other."""
    matmul_seconds: Size
    """The part of the compute that matmuls and attention bound."""

    @property
    def exposed_communication_seconds(self) -> Size:
        """What the compute stream waits for. [s]"""
        return self.step_seconds - self.compute_seconds


@dataclass(slots=True)
class _Prices:
    """Prices already worked out: equal blocks share their steps and repeat their collectives."""

    wires: Fabric
    gpu: GpuPrice
    of_steps: dict[int, tuple[Size, Size]]
    of_collectives: dict[Collective, Size]

    def compute(self, steps: tuple[Step, ...]) -> tuple[Size, Size]:
        """Time of a run of operations, and its matmuls' part. [s]"""
        known = self.of_steps.get(id(steps))
        if known is None:
            total, bound = 0.0, 0.0
            for step in steps:
                seconds = step_seconds(step, self.gpu)
                total = total + seconds
                if step.operation.kernel in ("matmul", "attention"):
                    bound = bound + seconds
            known = self.of_steps[id(steps)] = total, bound
        return known

    def collective(self, collective: Collective) -> Size:
        """Time of one collective. [s]"""
        known = self.of_collectives.get(collective)
        if known is None:
            known = self.of_collectives[collective] = collective_seconds(collective, self.wires)
        return known


def walk(script: Script, gpu: GpuPrice, wires: Fabric, *, overlaps: bool = True) -> Timing:
    """Run a script on one clock per stream.

    An event starts when its stream is free and what it waits for has ended. Without overlap
    (gloo) collectives run on the compute stream.
    """
    prices = _Prices(wires, gpu, {}, {})
    clocks: dict[str, Size] = defaultdict(float)
    spans: list[Span] = []
    compute = matmul = communication = optimizer = 0.0
    for event in script.events:
        stream = event.stream if overlaps else "compute"
        start = clocks[stream]
        for index in event.waits:
            start = maximum(start, spans[index].end)
        work, bound = prices.compute(event.steps) if event.steps else (0.0, 0.0)
        work = work + event.traffic_bytes / gpu.bytes_per_second
        sent = 0.0 if event.collective is None else prices.collective(event.collective)
        end = start + work + sent
        clocks[stream] = end
        spans.append(Span(event, start, end))
        if event.stream == "compute":
            compute, matmul = compute + work, matmul + bound
            if event.phase == "optimizer":
                optimizer = optimizer + work
        communication = communication + sent
    step = 0.0
    for clock in clocks.values():
        step = maximum(step, clock)
    return Timing(
        spans=tuple(spans),
        step_seconds=step,
        compute_seconds=compute,
        optimizer_seconds=optimizer,
        communication_seconds=communication,
        matmul_seconds=matmul,
    )
