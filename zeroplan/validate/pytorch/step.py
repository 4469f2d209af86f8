"""One training step, watched."""

import gc
from dataclasses import dataclass, field

import torch
from torch import nn

from zeroplan.estimation.record import PhasePeaks
from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.calls import CallLog
from zeroplan.validate.pytorch.environment import token_ids
from zeroplan.validate.pytorch.frameworks import clip_gradients, micro_step
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.loss import loss_of
from zeroplan.validate.pytorch.optimizers import Optimizer
from zeroplan.validate.pytorch.reference import Reference
from zeroplan.validate.pytorch.subject import Subject
from zeroplan.validate.record import PHASES, Held, Observation, Phase

__all__ = ["Setup", "batches", "observe"]


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
    """The two observers, and the levels read off the ledger in between. [B]"""

    ledger: Ledger
    log: CallLog
    start: int = 0
    after_forwards: list[int] = field(default_factory=list)
    after_backward: int = 0

    def begin(self, phase: Phase) -> None:
        """Open a phase on both."""
        self.log.phase = phase
        self.ledger.begin(phase)


def observe(setup: Setup, ledger: Ledger) -> Observation:
    """Run two steps and return what the second showed: the first makes the optimizer's states."""
    _step(setup, _Watch(ledger, CallLog()))
    before_update = max(ledger.peaks["forward"][0], ledger.peaks["backward"][0])
    ledger.peaks.clear()
    watch = _Watch(ledger, CallLog())
    copies = setup.optimizer.averages if setup.optimizer else []
    frozen = setup.reference
    reference = frozen.parameters if frozen else ()
    weights = (*setup.module.parameters(), *copies, *setup.constants, *reference)
    parameters = ledger.bytes_of(weights)
    optimizer = ledger.bytes_of(setup.optimizer.states()) if setup.optimizer else 0
    inputs = (tensor for read, labels in setup.batches for tensor in (*read.values(), labels))
    tables = (*setup.module.buffers(), *(frozen.module.buffers() if frozen else ()))
    others = ledger.bytes_of((*inputs, *tables, *setup.logits))
    with watch.log:
        _step(setup, watch)
    return Observation(
        peak_by_phase_bytes=PhasePeaks(**{phase: ledger.peaks[phase][0] for phase in PHASES}),
        moments=tuple(ledger.peaks[phase][1] for phase in PHASES),
        peak_before_update_bytes=before_update if setup.plan.runs_before_update else None,
        held_bytes=Held(
            parameters=parameters,
            optimizer=optimizer,
            inputs_and_buffers=others,
            after_forward=watch.after_forwards[0] - watch.start,
            gradients=watch.after_backward - parameters - optimizer - others,
        ),
        collectives=watch.log.calls(),
    )


def batches(
    subject: Subject, plan: Plan
) -> tuple[tuple[dict[str, torch.Tensor], torch.Tensor], ...]:
    """Return what every micro-step reads, and its labels."""
    return tuple((subject.inputs(plan), token_ids(plan)) for _ in range(plan.micro_steps))


def _step(setup: Setup, watch: _Watch) -> None:
    plan, module = setup.plan, setup.module
    watch.start = watch.ledger.total
    for index, batch in enumerate(setup.batches):
        with micro_step(module, plan, last=index + 1 == plan.micro_steps):
            watch.begin("forward")
            if setup.reference is not None:
                setup.reference.forward(batch)
            loss = loss_of(module, setup.subject, plan, batch, setup.logits)
            watch.after_forwards.append(watch.ledger.total)
            watch.begin("backward")
            loss.backward()
            del loss
    watch.after_backward = watch.ledger.total
    watch.begin("optimizer")
    clip_gradients(module, plan)
    if setup.optimizer is not None:
        setup.optimizer.step()
        module.zero_grad()
    gc.collect()
