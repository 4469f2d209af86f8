"""The model that is run, and where its parts are."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import token_ids

__all__ = ["Subject"]


def _ids(plan: Plan) -> dict[str, torch.Tensor]:
    return {"ids": token_ids(plan)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model on the meta device, before it is wrapped."""

    module: nn.Module
    embeddings: tuple[nn.Module, ...]
    """What `root_wrap = "separate"` gathers first."""
    blocks: tuple[nn.ModuleList, ...]
    """One list for each stack, or more."""
    tail: tuple[nn.Module, ...]
    """Last norm and head."""
    tied: bool
    inputs: Callable[[Plan], dict[str, torch.Tensor]] = _ids
    """Makes what one micro-step reads, under the names of the module's arguments."""
    logits: Callable[[Any], torch.Tensor] = lambda output: output
    """Takes the logits out of what the module returns."""
    conditions: Callable[[], AbstractContextManager[object]] = nullcontext
    """What must surround its steps."""

    @property
    def every_block(self) -> list[nn.Module]:
        """The blocks of all stacks in forward order."""
        return [block for stack in self.blocks for block in stack]
