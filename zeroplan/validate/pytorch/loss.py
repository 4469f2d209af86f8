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
    module: nn.Module, subject: Subject, plan: Plan, ids: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return the mean cross-entropy of a forward; autocast on CUDA widens the logits anyway."""
    batch = plan.workload.batch
    with torch.autocast("cpu", DTYPES[batch.dtype]) if batch.autocast else nullcontext():
        logits = subject.logits(module(ids))
        flat = logits.flatten(0, 1)
        if batch.loss == "fp32-logits" or batch.autocast:
            flat = flat.float()
        return functional.cross_entropy(flat, labels.flatten(0, 1))
