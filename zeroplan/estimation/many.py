"""Many plans at once: one structure, its step written once, priced for batches and machines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np

from zeroplan.comm.collectives import inter_node_wire_bytes
from zeroplan.comm.fabric import Fabric
from zeroplan.comm.gloo import on_the_wire
from zeroplan.compute.gpu import gpu_price
from zeroplan.compute.offload import offload_price
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.communication import nccl_communicators
from zeroplan.estimation.race import Runners, race, time_all
from zeroplan.estimation.resolve import Question, ranks_per_node
from zeroplan.estimation.steps import Counted
from zeroplan.estimation.time import Load, load_of
from zeroplan.memory.device import device_memory
from zeroplan.memory.host import HostMemory, host_memory
from zeroplan.memory.many import Heights, heights
from zeroplan.records import dataclass, fields, replace
from zeroplan.schedule import script
from zeroplan.schedule.events import Event, Script
from zeroplan.schedule.plan import Plan, inputs
from zeroplan.schedule.stretches import FEWEST_PERIODS
from zeroplan.sharding.strategies import Sharding
from zeroplan.timing.band import step_band
from zeroplan.timing.host import host_price
from zeroplan.timing.many import of_micro_steps
from zeroplan.timing.many_prices import Machine, ManyPrices, OnGpus
from zeroplan.timing.walk import Timing

__all__ = ["VERDICTS", "Batches", "Figures", "Priced", "Races", "figures", "priced"]

Array = Any

Races = Callable[[Mapping[str, Array]], Iterable[Array]]
"""Given the figures of memory, says in masks which plans race against each other for time."""

VERDICTS: Final = ("fits", "tight", "does_not_fit")
"""What the codes of a verdict mean, best first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batches:
    """What a GPU computes in a step, for B batches."""

    micro_batch_size: Array
    """[B]"""
    sequence_length: Array
    """[B], or one for all. [tokens]"""
    gradient_accumulation_steps: Array
    """[A, B]: each batch with A numbers of micro-steps; all below four are the same number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figures:
    """Figures of plans, each an array over [A, batches, machines] of what a record has by name."""

    peak_allocated_bytes: Array
    reserved_bytes: Array
    device_bytes: Array
    usable_bytes: Array
    verdict: Array
    """Places in `VERDICTS`, of the device or of the node's host memory, whichever is worse."""
    host_bytes: Array
    step_seconds: Array
    low_seconds: Array
    high_seconds: Array
    compute_seconds: Array
    communication_seconds: Array
    exposed_communication_seconds: Array
    tokens_per_second_per_gpu: Array
    model_flops_utilization: Array
    inter_node_wire_bytes: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """A structure of which all is known but what takes a clock."""

    counted: Counted
    questions: Sequence[Question]
    plan: Plan
    load: Load
    memory: Mapping[str, Array]
    """By name of the figure."""
    sent: Array
    """What leaves a node per GPU and step. [B]"""
    runners: Runners

    @property
    def shape(self) -> tuple[int, ...]:
        """[A, batches, machines]"""
        return np.shape(self.memory["verdict"])

    def figures(self) -> Figures:
        """Return all figures; times are nan where no clock was run."""
        use = [*_uses(self.questions, self.plan, self.load, self.runners.timing(self.shape))]
        return Figures(
            **self.memory,
            **_by_machine(use, self.shape[:-1]),
            inter_node_wire_bytes=np.broadcast_to(self.sent[..., None], self.shape),
        )


def priced(
    questions: Sequence[Question], row: Sharding, batches: Batches, kin: Priced | None = None
) -> Priced:
    """Write down the step of a structure and price it, for every batch on every machine.

    Parameters
    ----------
    questions
        One for each machine; they differ in GPU and links alone.
    row
        The strategy.
    batches
        What to compute; it replaces what the questions say of that.
    kin
        The same on another number of GPUs, whose model need not be counted again.

    Raises
    ------
    SpecError
        A GPU does not compute in the dtype asked for.

    """
    steps = batches.gradient_accumulation_steps
    told, more = _told(steps)
    first = questions[0]
    training = replace(
        first.run.training,
        micro_batch_size=batches.micro_batch_size,
        sequence_length=batches.sequence_length,
        gradient_accumulation_steps=told,
    )
    asked = replace(first, run=replace(first.run, training=training))
    counted: Counted = {} if kin is None else kin.counted
    plan = plan_for(asked, row, counted)
    step = script(plan)
    prices = _prices(questions, plan, steps.shape[1], kin)
    several = np.repeat(np.broadcast_to(more, steps.shape), len(questions), axis=1)
    return Priced(
        counted=counted,
        questions=questions,
        plan=plan,
        load=load_of(plan, steps),
        memory=_by_machine([*_memories(questions, plan, step, more)], steps.shape),
        sent=_sent(step, more, first.wires),
        runners=Runners(step, prices, several, overlaps=first.wires.overlaps),
    )


def figures(several: Sequence[Priced], races: Races | None = None) -> list[Figures]:
    """Run the clocks of structures, together those whose steps have one shape.

    Parameters
    ----------
    several
        The structures.
    races
        Races of which on each machine the fastest plan is sought: it gets its times, and those that
        might have been as fast; the others' are nan. All plans get times where there are none.

    """
    runners = [each.runners for each in several]
    if races is None:
        time_all(runners)
    else:
        tokens = [np.asarray(each.load.tokens)[..., None] for each in several]
        race(
            runners,
            [np.broadcast_to(n, each.shape) for n, each in zip(tokens, several, strict=True)],
            [[*races(each.memory)] for each in several],
        )
    return [each.figures() for each in several]


def _told(steps: Array) -> tuple[int, Array]:
    """Return how many micro-steps a script tells, and how many there are beyond."""
    least = int(steps.min())
    if least < FEWEST_PERIODS:
        if not (steps == least).all():
            raise AssertionError
        return least, 0
    return FEWEST_PERIODS, steps - FEWEST_PERIODS


def _heights(plan: Plan, step: Script, more: Array) -> Heights:
    """Walk the step; micro-steps that it does not tell add what they read, throughout."""
    found = heights(step, more)
    read = more * sum(change.bytes for change in inputs(plan))
    return Heights(
        phases={phase: size + read for phase, size in found.phases.items()},
        pools_bytes={
            pool: size + read * (pool == "compute") for pool, size in found.pools_bytes.items()
        },
    )


def _memories(
    questions: Sequence[Question], plan: Plan, step: Script, more: Array
) -> Iterator[dict[str, Array]]:
    found = _heights(plan, step, more)
    hosts: dict[int | None, HostMemory] = {}
    for question in questions:
        there = question.run.cluster.host_memory_bytes
        if there not in hosts:
            hosts[there] = host_memory(plan, step, ranks_per_node(question.run), there)
        yield _memory(question, plan, found, hosts[there])


def _memory(question: Question, plan: Plan, found: Heights, host: HostMemory) -> dict[str, Array]:
    highest = reduce(np.maximum, found.phases.values())
    communicators = nccl_communicators(question, plan.groups)
    device = device_memory(highest, found.pools_bytes, question.gpu, communicators)
    verdict = _verdict(device.device_bytes, device.half_band_bytes, device.usable_bytes)
    if host.available_bytes is not None:
        held = np.maximum(host.held_bytes, host.load_bytes * host.checks_loading)
        verdict = np.maximum(verdict, _verdict(held, host.half_band_bytes, host.available_bytes))
    return {
        "peak_allocated_bytes": device.allocated_bytes,
        "reserved_bytes": device.reserved_bytes,
        "device_bytes": device.device_bytes,
        "usable_bytes": device.usable_bytes,
        "verdict": verdict,
        "host_bytes": host.held_bytes,
    }


def _verdict(size: Array, half_band: Array, limit: Array) -> Array:
    """Return places in `VERDICTS`."""
    return np.where(size + half_band <= limit, 0, np.where(size - half_band <= limit, 1, 2))


def _prices(
    questions: Sequence[Question], plan: Plan, batches: int, kin: Priced | None
) -> ManyPrices:
    compiled = questions[0].run.model.compile
    machines = [
        Machine(
            gpu=gpu_price(question.gpu, plan.training.compute_dtype),
            wires=question.wires,
            offload=offload_price(question.gpu, ranks_per_node(question.run)),
        )
        for question in questions
    ]
    if kin is not None and kin.runners.prices.on_gpus.serve(machines):
        return ManyPrices(machines, kin.runners.prices.on_gpus)
    host = host_price(plan.row, compiled=compiled)
    return ManyPrices(machines, OnGpus(machines, host, batches, fuses=compiled))


def _uses(
    questions: Sequence[Question], plan: Plan, load: Load, found: Timing
) -> Iterator[dict[str, Array]]:
    """Yield for each machine the times and what they say of the GPU. [A, batches]"""
    for place, question in enumerate(questions):
        price = gpu_price(question.gpu, plan.training.compute_dtype)
        timing = Timing(
            **{entry.name: getattr(found, entry.name)[..., place] for entry in fields(Timing)}
        )
        use = load.use(timing.step_seconds, price.peak_flop_per_second)
        low, high = step_band(timing, question.gpu, question.wires, plan.groups.world)
        yield {
            "step_seconds": timing.step_seconds,
            "low_seconds": low,
            "high_seconds": high,
            "compute_seconds": timing.compute_seconds,
            "communication_seconds": timing.communication_seconds,
            "exposed_communication_seconds": timing.exposed_communication_seconds,
            "tokens_per_second_per_gpu": use.tokens_per_second_per_gpu,
            "model_flops_utilization": use.model_flops_utilization,
        }


def _by_machine(columns: list[dict[str, Array]], shape: tuple[int, ...]) -> dict[str, Array]:
    """Put the figures of each machine side by side. [A, batches, machines]"""
    return {
        name: np.stack([np.broadcast_to(each[name], shape) for each in columns], axis=-1)
        for name in columns[0]
    }


def _sent(step: Script, more: Array, wires: Fabric) -> Array:
    """Return what leaves a node per GPU and step. [B]"""
    once, again = (_crossing(calls, wires) for calls in (step.calls(), of_micro_steps(step)))
    return np.asarray(once + more * again)


def _crossing(calls: Iterable[tuple[Event, int]], wires: Fabric) -> Array:
    total: Array = 0
    for event, times in calls:
        if event.collective is not None:
            total = total + times * inter_node_wire_bytes(on_the_wire(event.collective, wires))
    return total
