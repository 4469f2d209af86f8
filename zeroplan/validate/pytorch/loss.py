"""From token ids to the loss, in the forms a spec can name."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import DTYPES
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["loss_of"]


def loss_of(
    module: nn.Module,
    subject: Subject,
    plan: Plan,
    batch: tuple[dict[str, torch.Tensor], torch.Tensor],
    held: list[torch.Tensor],
) -> torch.Tensor:
    """Return the mean cross-entropy of a forward; autocast on CUDA widens the logits anyway.

    `held` gets the logits, where the training loop keeps them.
    """
    inputs, labels = batch
    form = plan.workload.batch
    casts = form.autocast or (form.tuning is not None and form.tuning.autocast)
    with torch.autocast(labels.device.type, DTYPES[form.dtype]) if casts else nullcontext():
        logits = subject.logits(module(**inputs))
        flat = logits.flatten(0, 1)
        if form.widens_logits:
            flat = flat.float()
        if form.keep_logits:
            held[:] = [flat]
        return functional.cross_entropy(flat, labels.flatten(0, 1))
