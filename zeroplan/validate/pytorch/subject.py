"""What is run: a model, and where its parts are."""

from collections.abc import Callable

import torch
from torch import nn

from zeroplan.records import dataclass

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model before it is wrapped."""

    module: nn.Module
    embeddings: nn.Module
    """What is gathered by itself under `root_wrap = "separate"`."""
    blocks: nn.ModuleList
    tail: tuple[nn.Module, ...]
    """Last norm and head."""
    logits: Callable[[object], torch.Tensor]
    """Takes the logits out of what the module returns."""
    tied: bool
