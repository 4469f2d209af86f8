"""One training step, watched."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from zeroplan.estimation.record import PhasePeaks
from zeroplan.records import dataclass, field
from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.calls import CallLog
from zeroplan.validate.pytorch.environment import DTYPES
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.loss import cross_entropy
from zeroplan.validate.record import Held, Observation, Phase

__all__ = ["Setup", "observe"]


@dataclass(slots=True, kw_only=True)
class Setup:
    """A wrapped model with its optimizer, ready to be stepped."""

    plan: Plan
    module: nn.Module
    optimizer: torch.optim.Optimizer | None
    logits: Callable[[object], torch.Tensor]
    micro_step: Callable[[bool], AbstractContextManager[object]]
    """Prepares a micro-step, given whether it is the last."""
    clip: Callable[[float], object]
    batches: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)


@dataclass(slots=True)
class _Watch:
    """The two observers and what was read off them between phases."""

    ledger: Ledger
    log: CallLog
    levels: dict[str, int] = field(default_factory=dict)

    def begin(self, phase: Phase) -> None:
        """Open a phase on both."""
        self.log.phase = phase
        self.ledger.begin(phase)


def observe(setup: Setup, ledger: Ledger) -> Observation:
    """Run two steps and return what the second, the first in steady state, showed."""
    batch = setup.plan.workload.batch
    shape = (int(batch.sequences), int(batch.sequence_length))
    with ledger, ledger.following_resizes():
        setup.batches = [
            (torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64))
            for _ in range(setup.plan.micro_steps)
        ]
        _step(setup, _Watch(ledger, CallLog()))
        ledger.peaks.clear()
        watch = _Watch(ledger, CallLog())
        rest = _at_rest(setup, ledger)
        with watch.log:
            _step(setup, watch)
    held = Held(
        parameters=rest["parameters"],
        optimizer=rest["optimizer"],
        inputs_and_buffers=rest["inputs_and_buffers"],
        after_forward=watch.levels["forward"] - watch.levels["start"],
        gradients=watch.levels["backward"] - sum(rest.values()),
    )
    phases: tuple[Phase, ...] = ("forward", "backward", "optimizer")
    return Observation(
        peak_by_phase_bytes=PhasePeaks(**{each: ledger.peaks[each][0] for each in phases}),
        moments=tuple(ledger.peaks[each][1] for each in phases),
        held_bytes=held,
        collectives=watch.log.calls(),
    )


def _step(setup: Setup, watch: _Watch) -> None:
    watch.levels["start"] = watch.ledger.total
    for index, (ids, labels) in enumerate(setup.batches):
        with setup.micro_step(index + 1 == len(setup.batches)):
            watch.begin("forward")
            loss = _forward(setup, ids, labels)
            watch.levels.setdefault("forward", watch.ledger.total)
            watch.begin("backward")
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
    watch.levels["backward"] = watch.ledger.total
    watch.begin("optimizer")
    if setup.plan.training.gradient_clipping:
        setup.clip(setup.plan.training.gradient_clipping)
    if setup.optimizer is not None:
        setup.optimizer.step()
        setup.optimizer.zero_grad()
    else:
        setup.module.zero_grad()
    gc.collect()


def _forward(setup: Setup, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return loss_of(setup.module, setup.logits, setup.plan, ids, labels)


def loss_of(module, logits, plan, ids, labels):
    batch = plan.workload.batch
    autocast = torch.autocast("cpu", DTYPES[batch.dtype]) if batch.autocast else nullcontext()
    with autocast:
        output = logits(module(ids))
        return cross_entropy(output, labels, batch)


def probe(module, subject, plan):
    batch = plan.workload.batch
    ids = torch.zeros((batch.sequences, batch.sequence_length), dtype=torch.int64)
    loss_of(module, subject.logits, plan, ids, ids).backward()


def _at_rest(setup: Setup, ledger: Ledger) -> dict[str, int]:
    inputs = (tensor for pair in setup.batches for tensor in pair)
    return {
        "parameters": ledger.bytes_of(setup.module.parameters()),
        "optimizer": ledger.bytes_of(_states(setup.optimizer)),
        "inputs_and_buffers": ledger.bytes_of((*inputs, *setup.module.buffers())),
    }


def _states(optimizer: torch.optim.Optimizer | None) -> Iterator[torch.Tensor]:
    if optimizer is not None:
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))
