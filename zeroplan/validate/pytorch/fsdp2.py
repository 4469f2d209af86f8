"""`fully_shard` around blocks and root, as a plan asks."""

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import DTYPES
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["before_micro_step", "shard"]


def shard(subject: Subject, plan: Plan) -> nn.Module:
    """Shard a model that lies on the meta device."""
    choice, root = plan.choice, subject.module
    options: dict[str, Any] = {"mesh": _mesh(plan), "mp_policy": _precision(plan)}
    apart = choice.root_wrap == "separate" and not subject.tied
    kept = choice.root_reshard_after_forward
    reshard = choice.reshard_after_forward
    if apart:
        fully_shard(subject.embeddings, reshard_after_forward=reshard, **options)
    for block in subject.blocks:
        fully_shard(block, reshard_after_forward=reshard, **options)
    if apart:
        fully_shard(list(subject.tail), reshard_after_forward=bool(kept), **options)
        kept = None
    fully_shard(root, reshard_after_forward=kept, **options)
    if apart and not choice.unshard_in_backward and isinstance(subject.embeddings, FSDPModule):
        subject.embeddings.set_unshard_in_backward(False)
    return root


def before_micro_step(root: nn.Module, plan: Plan, *, last: bool) -> None:
    """Set what differs between micro-steps."""
    if not isinstance(root, FSDPModule) or plan.micro_steps == 1:
        return
    choice = plan.choice
    root.set_requires_gradient_sync(last or choice.synchronize_gradients == "every")
    root.set_reshard_after_backward(last or choice.reshard_after_backward)
    root.set_requires_all_reduce(last or choice.all_reduce == "every")


def _mesh(plan: Plan) -> DeviceMesh:
    shard_ranks, copies = int(plan.groups.shard.ranks), int(plan.groups.replicate.ranks)
    if not plan.row.replicates:
        return init_device_mesh("cpu", (shard_ranks,), mesh_dim_names=("shard",))
    return init_device_mesh("cpu", (copies, shard_ranks), mesh_dim_names=("replicate", "shard"))


def _precision(plan: Plan) -> MixedPrecisionPolicy:
    training = plan.training
    compute = DTYPES[training.compute_dtype]
    return MixedPrecisionPolicy(
        param_dtype=None if compute == DTYPES[training.parameter_dtype] else compute,
        reduce_dtype=DTYPES[training.reduce_dtype or "fp32"],
    )
