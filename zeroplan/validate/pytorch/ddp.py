"""DistributedDataParallel in steady state.

DDP rearranges its buckets before the second forward, from data that fake tensors do not have. So
the order in which gradients arrive is recorded first, and its own function forms the buckets from
that order at once.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zeroplan.schedule.plan import Plan
from zeroplan.units import MIB
from zeroplan.validate.pytorch.environment import materialise, token_ids
from zeroplan.validate.pytorch.loss import loss_of
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["micro_step", "wrap"]

DEFAULT_BUCKET_BYTES: Final = 25 * MIB


class _SteadyReducer:
    """DDP's reducer, which has nothing to rearrange any more."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        return False


def wrap(subject: Subject, plan: Plan) -> nn.Module:
    """Give a model memory, see in which order its gradients arrive, and wrap it."""
    choice = plan.choice
    default = choice.bucket_bytes == DEFAULT_BUCKET_BYTES
    materialise(subject.module)
    with _arranged(_gradient_order(subject, plan), choice.bucket_bytes, default=default):
        wrapped = DistributedDataParallel(
            subject.module,
            init_sync=False,
            bucket_cap_mb=None if default else choice.bucket_bytes / MIB,
            gradient_as_bucket_view=choice.gradient_as_bucket_view,
        )
    wrapped.reducer = _SteadyReducer(wrapped.reducer)
    # the fake group's own future holds no tensor
    wrapped.register_comm_hook(None, _all_reduce)
    return wrapped


def micro_step(module: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[object]:
    """Return `no_sync` where gradients are not reduced."""
    reduces = last or plan.choice.synchronize_gradients == "every"
    if reduces or not isinstance(module, DistributedDataParallel):
        return nullcontext()
    return module.no_sync()


def _gradient_order(subject: Subject, plan: Plan) -> list[int]:
    """Run a backward and return the indices of parameters in the order of their gradients."""
    module, order = subject.module, list[int]()
    handles = [
        parameter.register_post_accumulate_grad_hook(lambda _, index=index: order.append(index))
        for index, parameter in enumerate(p for p in module.parameters() if p.requires_grad)
    ]
    batch = subject.inputs(plan), token_ids(plan)
    loss_of(module, subject, plan, batch, []).backward()
    module.zero_grad()
    for handle in handles:
        handle.remove()
    return order


def _all_reduce(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    dist.all_reduce(bucket.buffer())
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


@contextmanager
def _arranged(order: list[int], cap: int, *, default: bool) -> Iterator[None]:
    """Let DDP form the buckets that it has from its second step on."""
    original = dist._compute_bucket_assignment_by_size  # the only place where buckets are formed
    first = dist._DEFAULT_FIRST_BUCKET_BYTES if default else cap

    def assignment(parameters: list[torch.Tensor], *_: object) -> tuple[list[Any], list[Any]]:
        arriving = [parameters[index] for index in order]
        buckets, limits = original(arriving, [first, cap], [False] * len(order), order)
        return buckets[::-1], limits[::-1]  # DDP turns them round

    dist._compute_bucket_assignment_by_size = assignment
    try:
        yield
    finally:
        dist._compute_bucket_assignment_by_size = original
