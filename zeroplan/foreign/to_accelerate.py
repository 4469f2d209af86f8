"""A run as the keys of an accelerate configuration."""

from typing import Any

from zeroplan.errors import SpecError
from zeroplan.foreign.accelerate_table import DS, FSDP, MESH
from zeroplan.foreign.deepspeed import STAGES
from zeroplan.foreign.layers import layer_class
from zeroplan.spec.run import Run

__all__ = ["to_accelerate"]


def to_accelerate(run: Run, shard_size: int) -> dict[str, Any]:
    """Return values by dotted key; the shard group has so many ranks [count]."""
    strategy = run.sharding.strategy or ""
    if strategy == "torch-zero1":
        raise SpecError(
            "--format accelerate: no torch-zero1; use ddp, fsdp1, fsdp2, hsdp or zero0 to zero3."
        )
    kinds = {"ddp": "MULTI_GPU", "none": "NO"} | dict.fromkeys(STAGES, "DEEPSPEED")
    gpus, per_node = run.cluster.gpus, run.cluster.gpus_per_node or run.cluster.gpus
    words = {"bf16": "bf16", "fp16": "fp16"}
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": kinds.get(strategy, "FSDP"),
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": words.get(run.training.compute_dtype, "no"),
        "num_machines": max(1, gpus // per_node),
        "num_processes": gpus,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if run.model.compile:
        values["dynamo_config.dynamo_backend"] = "INDUCTOR"
    if strategy in STAGES:
        return values | _deepspeed(run)
    return values if strategy in kinds else values | _fsdp(run, shard_size)


def _deepspeed(run: Run) -> dict[str, Any]:
    sharding, training = run.sharding, run.training
    number = STAGES.index(str(sharding.strategy))
    found: dict[str, Any] = {
        f"{DS}gradient_accumulation_steps": training.gradient_accumulation_steps,
        f"{DS}zero_stage": number,
    }
    if training.gradient_clipping:
        found[f"{DS}gradient_clipping"] = training.gradient_clipping
    if number:
        found[f"{DS}offload_optimizer_device"] = sharding.offload_optimizer
    if sharding.strategy == STAGES[-1]:
        found[f"{DS}offload_param_device"] = sharding.offload_parameters
        found[f"{DS}zero3_init_flag"] = True
    return found


def _fsdp(run: Run, shard_size: int) -> dict[str, Any]:
    sharding, training = run.sharding, run.training
    first = sharding.strategy == "fsdp1"
    found: dict[str, Any] = {
        f"{FSDP}version": 1 if first else 2,
        f"{FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        f"{FSDP}offload_params": sharding.offload_parameters != "none",
        f"{FSDP}state_dict_type": "SHARDED_STATE_DICT",
    }
    own = layer_class(run.model.source)
    if own is not None:
        found[f"{FSDP}transformer_layer_cls_to_wrap"] = own
    if training.activation_checkpointing in ("none", "full"):
        found[f"{FSDP}activation_checkpointing"] = training.activation_checkpointing == "full"
    if training.load in ("rank0", "every-rank"):
        found[f"{FSDP}cpu_ram_efficient_loading"] = training.load == "rank0"
    if first:
        return found | _first(run, shard_size)
    if training.offload_activations:
        found[f"{FSDP}activation_checkpointing_offload"] = True
    found[f"{FSDP}reshard_after_forward"] = bool(sharding.reshard_after_forward)
    if run.cluster.gpus > shard_size:
        found[f"{MESH}dp_replicate_size"] = run.cluster.gpus // shard_size
        found[f"{MESH}dp_shard_size"] = shard_size
    return found


def _first(run: Run, shard_size: int) -> dict[str, Any]:
    sharding = run.sharding
    words = {"pre": "BACKWARD_PRE", "post": "BACKWARD_POST", "none": "NO_PREFETCH"}
    name = "FULL_SHARD" if sharding.reshard_after_forward else "SHARD_GRAD_OP"
    if shard_size < run.cluster.gpus:
        name = "HYBRID_SHARD" if sharding.reshard_after_forward else "HYBRID_SHARD_ZERO2"
    if shard_size == 1:
        name = "NO_SHARD"
    return {
        f"{FSDP}sharding_strategy": name,
        f"{FSDP}backward_prefetch": words[sharding.backward_prefetch],
        f"{FSDP}forward_prefetch": False,
        f"{FSDP}use_orig_params": sharding.use_orig_params,
    }
