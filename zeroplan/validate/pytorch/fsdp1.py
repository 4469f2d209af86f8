"""`FullyShardedDataParallel` around blocks and root, as a plan asks."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
    _runtime_utils,
)
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    _or_policy,
    lambda_auto_wrap_policy,
)

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import DTYPES, materialise
from zeroplan.validate.pytorch.ledger import storage_of
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
        "device_id": torch.get_default_device(),
        "cpu_offload": CPUOffload(offload_params=bool(plan.offload)),
    }
    policy: Any = ModuleWrapPolicy({type(block) for block in subject.every_block})
    tuning = plan.workload.batch.tuning
    if tuning is not None and tuning.rank and not choice.use_orig_params:
        policy = partial(_or_policy, policies=[policy, _TRAINED_LAYERS])
    wrapped = FullyShardedDataParallel(subject.module, auto_wrap_policy=policy, **options)
    for unit in FullyShardedDataParallel.fsdp_modules(wrapped):
        if unit._handle is not None:
            # whether a user wrote to a parameter is seen at its address, which fakes do not have
            unit._handle._skip_writeback_check = True
    return wrapped


def _is_trained_layer(module: nn.Module) -> bool:
    """Whether peft's `fsdp_auto_wrap_policy` wraps a layer by itself."""
    weight = getattr(module, "weight", None)
    return weight is not None and not list(module.children()) and weight.requires_grad


_TRAINED_LAYERS: Final = partial(lambda_auto_wrap_policy, lambda_fn=_is_trained_layer)


def micro_step(module: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[object]:
    """Return what surrounds a micro-step, with `no_sync` where gradients are not reduced."""
    reduces = last or plan.choice.synchronize_gradients == "every"
    around = ExitStack()
    around.enter_context(_resharding_all())
    if not reduces and isinstance(module, FullyShardedDataParallel):
        around.enter_context(module.no_sync())
    return around


@contextmanager
def _resharding_all() -> Iterator[None]:
    """Let the end of backward reshard what no hook has resharded, as frozen units.

    FSDP1 sees that at addresses, which fakes do not have (`_catch_all_reshard`).
    """
    original = _runtime_utils._catch_all_reshard

    def catch_all_reshard(state: Any) -> None:
        handle = state._handle
        if handle is None:
            return
        whole, shard = (storage_of(t) for t in (handle.flat_param, handle.flat_param._local_shard))
        if whole is not shard:
            free = _runtime_utils._should_free_in_backward(state, handle)
            _runtime_utils._reshard(state, handle, free)

    _runtime_utils._catch_all_reshard = catch_all_reshard
    try:
        yield
    finally:
        _runtime_utils._catch_all_reshard = original


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
    kind = torch.get_default_device().type
    if copies == 1 or shard_ranks == 1:
        return init_device_mesh(kind, (copies * shard_ranks,))
    return init_device_mesh(kind, (copies, shard_ranks), mesh_dim_names=("replicate", "shard"))


def _precision(plan: Plan) -> MixedPrecision:
    training = plan.training
    return MixedPrecision(
        param_dtype=DTYPES[training.compute_dtype],
        reduce_dtype=DTYPES[training.reduce_dtype or "fp32"],
    )
