"""`FullyShardedDataParallel` around blocks and root, as a plan asks."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import DTYPES, materialise
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["clip", "micro_step", "wrap"]

PREFETCH: Final = {
    "pre": BackwardPrefetch.BACKWARD_PRE,
    "post": BackwardPrefetch.BACKWARD_POST,
    "none": None,
}


def wrap(subject: Subject, plan: Plan) -> nn.Module:
    """Wrap every block, and the rest as the root."""
    choice = plan.choice
    with unset_fake_temporarily():  # a device mesh reads its ranks
        mesh = _mesh(plan)
    materialise(subject.module)
    options: dict[str, Any] = {
        "sharding_strategy": _strategy(plan),
        "mixed_precision": _precision(plan),
        "backward_prefetch": PREFETCH[choice.backward_prefetch],
        "use_orig_params": choice.use_orig_params,
        "device_mesh": mesh,
        "device_id": "cpu",
        "cpu_offload": CPUOffload(offload_params=bool(plan.offload)),
    }
    policy = ModuleWrapPolicy({type(block) for block in subject.every_block})
    wrapped = FullyShardedDataParallel(subject.module, auto_wrap_policy=policy, **options)
    for unit in FullyShardedDataParallel.fsdp_modules(wrapped):
        if unit._handle is not None:
            # whether a user wrote to a parameter is seen at its address, which fakes do not have
            unit._handle._skip_writeback_check = True
    return wrapped


def micro_step(module: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[object]:
    """Return `no_sync` where gradients are not reduced."""
    reduces = last or plan.choice.synchronize_gradients == "every"
    if reduces or not isinstance(module, FullyShardedDataParallel):
        return nullcontext()
    return module.no_sync()


def clip(module: nn.Module, limit: float) -> None:
    """Clip by the norm of all ranks' gradients."""
    if isinstance(module, FullyShardedDataParallel):
        module.clip_grad_norm_(limit)


def _strategy(plan: Plan) -> ShardingStrategy:
    if int(plan.groups.shard.ranks) == 1:
        return ShardingStrategy.NO_SHARD
    whole = int(plan.groups.replicate.ranks) == 1
    if plan.choice.reshard_after_forward is False:
        return ShardingStrategy.SHARD_GRAD_OP if whole else ShardingStrategy._HYBRID_SHARD_ZERO2
    return ShardingStrategy.FULL_SHARD if whole else ShardingStrategy.HYBRID_SHARD


def _mesh(plan: Plan) -> DeviceMesh:
    shard_ranks, copies = int(plan.groups.shard.ranks), int(plan.groups.replicate.ranks)
    if copies == 1 or shard_ranks == 1:
        return init_device_mesh("cpu", (copies * shard_ranks,))
    return init_device_mesh("cpu", (copies, shard_ranks), mesh_dim_names=("replicate", "shard"))


def _precision(plan: Plan) -> MixedPrecision:
    training = plan.training
    return MixedPrecision(
        param_dtype=DTYPES[training.compute_dtype],
        reduce_dtype=DTYPES[training.reduce_dtype or "fp32"],
    )
