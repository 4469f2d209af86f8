"""A run as the keys of a torchtitan job."""

from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.foreign.torchtitan import FLAVORS
from zeroplan.foreign.torchtitan_table import FLOAT8, PARALLEL
from zeroplan.spec.run import Run

__all__ = ["to_torchtitan"]

STRATEGIES: Final = ("fsdp2", "hsdp", "ddp", "none")
DTYPES: Final = {"bf16": "bfloat16", "fp32": "float32"}
NAMES: Final = {"adamw": "AdamW", "adam": "Adam"}


def to_torchtitan(run: Run, shard_size: int) -> dict[str, Any]:
    """Return values by dotted key; the shard group has so many ranks [count]."""
    strategy = str(run.sharding.strategy)
    if strategy not in STRATEGIES:
        raise SpecError(
            f"--format torchtitan: torchtitan has no {strategy}; use {', '.join(STRATEGIES)}."
        )
    return _model(run) | _optimizer(run) | _training(run) | _groups(run, shard_size) | _rest(run)


def _model(run: Run) -> dict[str, Any]:
    flavors = {source: names for names, source in FLAVORS.items()}
    found: dict[str, Any] = {}
    if run.model.source in flavors:
        name, flavor = flavors[run.model.source]
        found |= {"model.name": name, "model.flavor": flavor.upper()}
    if run.training.fp8 != "none":
        found["model.converters"] = ["float8"]
    return found


def _optimizer(run: Run) -> dict[str, Any]:
    training = run.training
    found: dict[str, Any] = {}
    if training.optimizer in NAMES:
        found["optimizer.name"] = NAMES[training.optimizer]
    found["optimizer.implementation"] = training.optimizer_implementation or "foreach"
    if training.optimizer_in_backward:
        found["optimizer.early_step_in_backward"] = True
    return found


def _training(run: Run) -> dict[str, Any]:
    training = run.training
    micro, steps = training.micro_batch_size, training.gradient_accumulation_steps
    found: dict[str, Any] = {
        "training.local_batch_size": micro,
        "training.global_batch_size": micro * steps * run.cluster.gpus,
        "training.seq_len": training.sequence_length,
        "training.enable_cpu_offload": run.sharding.offload_parameters != "none",
    }
    if training.gradient_clipping:
        found["training.max_norm"] = training.gradient_clipping
    for name, dtype in (
        ("dtype", training.parameter_dtype),
        ("mixed_precision_param", training.compute_dtype),
    ):
        if dtype in DTYPES:
            found[f"training.{name}"] = DTYPES[dtype]
    found["training.mixed_precision_reduce"] = "float32"
    return found


def _groups(run: Run, shard_size: int) -> dict[str, Any]:
    sharding, gpus = run.sharding, run.cluster.gpus
    size = shard_size if sharding.strategy in ("fsdp2", "hsdp") else 1
    policy = "default" if sharding.reshard_after_forward else "never"
    if sharding.root_reshard_after_forward and sharding.reshard_after_forward:
        policy = "always"
    return {
        f"{PARALLEL}data_parallel_replicate_degree": gpus // size,
        f"{PARALLEL}data_parallel_shard_degree": size,
        f"{PARALLEL}fsdp_reshard_after_forward": policy,
        f"{PARALLEL}tensor_parallel_degree": 1,
        f"{PARALLEL}pipeline_parallel_degree": 1,
        f"{PARALLEL}context_parallel_degree": 1,
    }


def _rest(run: Run) -> dict[str, Any]:
    kind = run.training.activation_checkpointing
    mode, option = (
        (kind, "op") if kind in ("none", "full") else ("selective", kind.removeprefix("every-"))
    )
    found: dict[str, Any] = {
        "activation_checkpoint.mode": mode,
        "activation_checkpoint.selective_ac_option": "op" if option == "selective" else option,
        "compile.enable": run.model.compile,
    }
    if run.model.compile:
        parts = ["model", "loss"] if run.model.loss == "compiled" else ["model"]
        found["compile.components"] = parts
    if run.training.fp8 != "none":
        found |= {
            f"{FLOAT8}recipe_name": run.training.fp8,
            f"{FLOAT8}filter_fqns": ["output"],
            f"{FLOAT8}enable_fsdp_float8_all_gather": run.sharding.fp8_all_gather,
        }
    return found
