"""What each framework makes of a model, and of its micro-steps."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from torch import nn
from torch.nn.utils import clip_grad_norm_

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch import ddp, fsdp1, fsdp2
from zeroplan.validate.pytorch.checkpointing import checkpoint_blocks
from zeroplan.validate.pytorch.environment import materialise
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["clip_gradients", "micro_step", "wrap"]


class MicroStep(Protocol):
    """Prepares a wrapped module for a micro-step and returns what surrounds it."""

    def __call__(
        self, module: nn.Module, plan: Plan, *, last: bool
    ) -> AbstractContextManager[object]:
        """Prepare one."""


def wrap(subject: Subject, plan: Plan) -> nn.Module:
    """Checkpoint a model, give it memory and wrap it.

    A checkpoint stands inside of what wraps a block, but around FSDP1's, whose units then gather
    twice in backward if it is reentrant.
    """
    outside = plan.row.framework == "fsdp1"
    if not outside:
        checkpoint_blocks(subject.blocks, plan.training)
    module = _WRAPPERS[plan.row.framework](subject, plan)
    if outside:
        checkpoint_blocks(subject.blocks, plan.training)
    return module


def micro_step(module: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[object]:
    """Return what surrounds a micro-step."""
    return _MICRO_STEPS[plan.row.framework](module, plan, last=last)


def clip_gradients(module: nn.Module, plan: Plan) -> None:
    """Clip by the norm, if the plan says so."""
    limit = plan.training.gradient_clipping
    if limit and plan.row.framework == "fsdp1":
        fsdp1.clip(module, limit)
    elif limit:
        clip_grad_norm_(module.parameters(), limit, foreach=True)


def _bare(subject: Subject, plan: Plan) -> nn.Module:  # noqa: ARG001  # the signature is the others'
    materialise(subject.module)
    return subject.module


def _nothing(module: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[object]:  # noqa: ARG001  # the same
    return nullcontext()


_WRAPPERS: Final[dict[str, Callable[[Subject, Plan], nn.Module]]] = {
    "single": _bare,
    "ddp": ddp.wrap,
    "torch-zero1": ddp.wrap,
    "fsdp1": fsdp1.wrap,
    "fsdp2": fsdp2.wrap,
}
_MICRO_STEPS: Final[dict[str, MicroStep]] = {
    "single": _nothing,
    "ddp": ddp.micro_step,
    "torch-zero1": ddp.micro_step,
    "fsdp1": fsdp1.micro_step,
    "fsdp2": fsdp2.micro_step,
}
