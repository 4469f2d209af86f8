"""The frozen copy that runs forward before the model."""

from dataclasses import dataclass

import torch
from torch import nn

from zeroplan.records import replace
from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch import fsdp2
from zeroplan.validate.pytorch.environment import materialise
from zeroplan.validate.pytorch.loss import loss_of
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["Reference", "frozen_copy", "frozen_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A frozen copy, ready to run."""

    plan: Plan
    subject: Subject
    module: nn.Module
    stored: tuple[torch.Tensor, ...]
    """Its parameters as they lie between steps; FSDP2's root shows what it gathered instead."""

    @property
    def parameters(self) -> tuple[torch.Tensor, ...]:
        """What it holds, gathered ones included."""
        return (*self.stored, *self.module.parameters())

    def forward(self, batch: tuple[dict[str, torch.Tensor], torch.Tensor]) -> None:
        """Run a batch, keep nothing."""
        with torch.no_grad():
            loss_of(self.module, self.subject, self.plan, batch, [])


def frozen_plan(plan: Plan) -> Plan | None:
    """Return the plan of a copy that is stored in the compute dtype; None where there is none."""
    if plan.reference is None:
        return None
    compute = plan.training.compute_dtype
    stored = "fp32" if compute == "tf32" else compute
    training = replace(plan.training, parameter_dtype=stored, activation_checkpointing="none")
    return replace(plan, workload=plan.reference, training=training)


def frozen_copy(subject: Subject, plan: Plan) -> Reference:
    """Give a copy memory, and shard it as the model is."""
    frozen = frozen_plan(plan) or plan
    for parameter in subject.module.parameters():
        parameter.requires_grad_(False)  # noqa: FBT003  # torch's own argument
    if plan.row.framework == "fsdp2":
        fsdp2.wrap(subject, frozen)
    else:
        materialise(subject.module)
    stored = tuple(subject.module.parameters())
    return Reference(plan=frozen, subject=subject, module=subject.module, stored=stored)
