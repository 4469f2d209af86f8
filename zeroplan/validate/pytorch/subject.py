"""The model that is run, and where its parts are."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model on the meta device, before it is wrapped."""

    module: nn.Module
    embeddings: tuple[nn.Module, ...]
    """What `root_wrap = "separate"` gathers first."""
    blocks: nn.ModuleList
    tail: tuple[nn.Module, ...]
    """Last norm and head."""
    tied: bool
    logits: Callable[[Any], torch.Tensor] = lambda output: output
    """Takes the logits out of what the module returns."""
    conditions: Callable[[], AbstractContextManager[object]] = nullcontext
    """What must surround its steps."""
