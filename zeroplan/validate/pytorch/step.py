"""One training step, watched."""

import gc
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

import torch
import torch.distributed as dist
from torch import nn

from zeroplan.estimation.record import PhasePeaks
from zeroplan.records import fields, replace
from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.calls import CallLog
from zeroplan.validate.pytorch.environment import token_ids
from zeroplan.validate.pytorch.frameworks import clip_gradients, micro_step
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.loss import loss_of
from zeroplan.validate.pytorch.meters import Clock, Meter, NoMeter
from zeroplan.validate.pytorch.optimizers import Optimizer
from zeroplan.validate.pytorch.reference import Reference
from zeroplan.validate.pytorch.subject import Subject
from zeroplan.validate.record import PHASES, Held, Observation, Phase

__all__ = ["Setup", "batches", "observe", "observe_job", "run_steps", "step_seconds"]

WARM_UP: Final = 2
WATCHED: Final = 3
TIMED: Final = 5
"""Steps of a real job. [count]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A wrapped model with its optimizer and its batches, ready to be stepped."""

    plan: Plan
    subject: Subject
    module: nn.Module
    """The wrapped one."""
    optimizer: Optimizer | None
    batches: tuple[tuple[dict[str, torch.Tensor], torch.Tensor], ...]
    """What each micro-step reads, and its labels."""
    constants: list[torch.Tensor]
    """Scales of quantised weights, which are no parameters."""
    reference: Reference | None = None
    """A frozen copy, where one runs before the model."""
    logits: list[torch.Tensor] = field(default_factory=list)
    """Those of the last micro-step, where the training loop holds them."""


@dataclass(slots=True)
class _Watch:
    """The two observers, and the levels read off the meter in between. [B]"""

    meter: Meter
    log: CallLog
    start: int = 0
    after_forwards: list[int] = field(default_factory=list)
    after_backward: int = 0

    def begin(self, phase: Phase) -> None:
        """Open a phase on both."""
        self.log.phase = phase
        self.meter.begin(phase)


def observe(setup: Setup, ledger: Ledger) -> Observation:
    """Run two steps and return what the second showed: the first makes the optimizer's states."""
    _step(setup, _Watch(ledger, CallLog()))
    before_update = max(ledger.peaks["forward"][0], ledger.peaks["backward"][0])
    known = before_update if setup.plan.runs_before_update else None
    return replace(_watched(setup, ledger), peak_before_update_bytes=known)


def observe_job(setup: Setup, meter: Meter) -> Observation:
    """Run steps of a real job and return what they showed.

    At the start of the second DDP rearranges its buckets. Now and then gloo's thread lets go of a
    buffer late, so that of several steps the lowest levels are told. Collectives are counted in a
    step of their own: whatever sees every operation also lets autograd add gradients into new
    tensors, which a ledger knows and an allocator does not.
    """
    for _ in range(WARM_UP):
        _step(setup, _Watch(meter, CallLog()))
    seen = _lowest([_watched(setup, meter, counts=False) for _ in range(WATCHED)])
    return replace(seen, collectives=_watched(setup, NoMeter()).collectives)


def step_seconds(setup: Setup) -> tuple[float, ...]:
    """Time steps of a real job that nobody watches; every rank begins them together. [s]"""
    idle, seconds = NoMeter(), list[float]()
    for _ in range(TIMED):
        dist.barrier()
        begin = perf_counter()
        _step(setup, _Watch(idle, CallLog()))
        seconds.append(perf_counter() - begin)
    return tuple(seconds)


def run_steps(setup: Setup, count: int, clock: Clock | None = None) -> None:
    """Run steps one after the other, as a training loop does; a clock is told when phases begin.

    Only where nothing is timed are cycles of references looked for between steps.
    """
    for _ in range(count):
        _step(setup, _Watch(clock or NoMeter(), CallLog()), collects=clock is None)
        if clock is not None:
            clock.mark()


def _lowest(seen: list[Observation]) -> Observation:
    peaks = [each.peak_by_phase_bytes for each in seen]
    held = [each.held_bytes for each in seen]
    return replace(
        seen[0],
        peak_by_phase_bytes=PhasePeaks(
            **{phase: min(getattr(each, phase) for each in peaks) for phase in PHASES}
        ),
        held_bytes=Held(
            **{part.name: min(getattr(each, part.name) for each in held) for part in fields(Held)}
        ),
    )


def _watched(setup: Setup, meter: Meter, *, counts: bool = True) -> Observation:
    meter.forget()
    watch = _Watch(meter, CallLog())
    copies = setup.optimizer.averages if setup.optimizer else []
    frozen = setup.reference
    reference = frozen.parameters if frozen else ()
    weights = (*setup.module.parameters(), *copies, *setup.constants, *reference)
    parameters = meter.bytes_of(weights)
    optimizer = meter.bytes_of(setup.optimizer.states()) if setup.optimizer else 0
    inputs = (tensor for read, labels in setup.batches for tensor in (*read.values(), labels))
    tables = (*setup.module.buffers(), *(frozen.module.buffers() if frozen else ()))
    others = meter.bytes_of((*inputs, *tables, *setup.logits))
    with watch.log if counts else nullcontext():
        _step(setup, watch)
    peaks = meter.peaks or dict.fromkeys(PHASES, (0, ""))
    return Observation(
        peak_by_phase_bytes=PhasePeaks(**{phase: peaks[phase][0] for phase in PHASES}),
        moments=tuple(peaks[phase][1] for phase in PHASES),
        peak_before_update_bytes=None,
        held_bytes=Held(
            parameters=parameters,
            optimizer=optimizer,
            inputs_and_buffers=others,
            after_forward=watch.after_forwards[0] - watch.start,
            gradients=watch.after_backward - parameters - optimizer - others,
        ),
        collectives=watch.log.calls(),
        step_seconds=(),
    )


def batches(
    subject: Subject, plan: Plan
) -> tuple[tuple[dict[str, torch.Tensor], torch.Tensor], ...]:
    """Return what every micro-step reads, and its labels."""
    return tuple((subject.inputs(plan), token_ids(plan)) for _ in range(plan.micro_steps))


def _step(setup: Setup, watch: _Watch, *, collects: bool = True) -> None:
    plan, module = setup.plan, setup.module
    watch.start = watch.meter.total
    for index, batch in enumerate(setup.batches):
        with micro_step(module, plan, last=index + 1 == plan.micro_steps):
            watch.begin("forward")
            if setup.reference is not None:
                setup.reference.forward(batch)
            loss = loss_of(module, setup.subject, plan, batch, setup.logits)
            watch.after_forwards.append(watch.meter.total)
            watch.begin("backward")
            loss.backward()
            del loss
    watch.after_backward = watch.meter.total
    watch.begin("optimizer")
    clip_gradients(module, plan)
    if setup.optimizer is not None:
        setup.optimizer.step()
        module.zero_grad()
    if collects:
        gc.collect()
