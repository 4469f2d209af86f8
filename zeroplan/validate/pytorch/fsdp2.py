"""`fully_shard` around blocks and root, as a plan asks."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import DTYPES, materialise
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["micro_step", "wrap"]


def wrap(subject: Subject, plan: Plan) -> nn.Module:
    """Shard a model that lies on the meta device and give the shards memory."""
    with unset_fake_temporarily():  # a device mesh reads its ranks
        _shard(subject, plan)
    materialise(subject.module)
    return subject.module


def _shard(subject: Subject, plan: Plan) -> None:
    choice = plan.choice
    options: dict[str, Any] = {
        "mesh": _mesh(plan),
        "mp_policy": _precision(plan),
        "offload_policy": CPUOffloadPolicy(pin_memory=False) if plan.offload else OffloadPolicy(),
    }
    apart = choice.root_wrap == "separate" and not subject.tied
    reshard, root_reshard = choice.reshard_after_forward, choice.root_reshard_after_forward
    if apart:
        embeddings = list(subject.embeddings)
        fully_shard(embeddings, reshard_after_forward=reshard, **options)
        for each in embeddings:
            if isinstance(each, FSDPModule):
                each.set_unshard_in_backward(choice.unshard_in_backward)
    for block in subject.every_block:
        fully_shard(block, reshard_after_forward=reshard, **options)
    if apart:
        tail = list(subject.tail)
        fully_shard(tail, reshard_after_forward=bool(root_reshard), **options)
    kept = None if apart else root_reshard
    fully_shard(subject.module, reshard_after_forward=kept, **options)
    _prefetch(subject.every_block, plan)


def _prefetch(blocks: list[nn.Module], plan: Plan) -> None:
    """Let each block gather so many others ahead."""
    forward, back = plan.choice.forward_prefetch_blocks, plan.choice.backward_prefetch_blocks
    for i, block in enumerate(blocks):
        if not isinstance(block, FSDPModule):
            continue
        if forward:
            block.set_modules_to_forward_prefetch(blocks[i + 1 : i + 1 + forward])
        if back:
            block.set_modules_to_backward_prefetch(blocks[:i][-back:][::-1])


def micro_step(module: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[object]:
    """Set what differs between micro-steps."""
    if isinstance(module, FSDPModule) and plan.micro_steps > 1:
        choice = plan.choice
        module.set_requires_gradient_sync(last or choice.synchronize_gradients == "every")
        module.set_reshard_after_backward(last or choice.reshard_after_backward)
        module.set_requires_all_reduce(last or choice.all_reduce == "every")
    return nullcontext()


def _mesh(plan: Plan) -> DeviceMesh:
    shard_ranks, copies = int(plan.groups.shard.ranks), int(plan.groups.replicate.ranks)
    kind = torch.get_default_device().type
    if not plan.row.replicates:
        return init_device_mesh(kind, (shard_ranks,), mesh_dim_names=("shard",))
    return init_device_mesh(kind, (copies, shard_ranks), mesh_dim_names=("replicate", "shard"))


def _precision(plan: Plan) -> MixedPrecisionPolicy:
    training = plan.training
    return MixedPrecisionPolicy(
        param_dtype=DTYPES[training.compute_dtype],
        reduce_dtype=DTYPES[training.reduce_dtype or "fp32"],
    )
