"""The loss in the forms a spec can name."""

import torch
from torch.nn import functional

from zeroplan.workload.batch import Batch

__all__ = ["cross_entropy"]


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy; autocast widens the logits on CUDA in any case."""
    flat = logits.flatten(0, 1)
    if batch.loss == "fp32-logits" or batch.autocast:
        flat = flat.float()
    return functional.cross_entropy(flat, labels.flatten(0, 1))
