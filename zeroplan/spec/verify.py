"""Rules that join keys of a run; those of a single key stand in its type."""

from typing import Final

from zeroplan.errors import SpecError
from zeroplan.spec.run import ClusterChoice, Run, ShardingChoice, TrainingChoice, TuningChoice

__all__ = ["verify"]

PARTITIONED: Final = (None, "zero3")
"""Strategies that partition parameters by DeepSpeed, or all that are compared."""
MICS_REMOVED: Final = (0, 19, 7)

ZERO_PLUS_PLUS_ADDED: Final = (0, 10, 0)
"""The first release after DeepSpeed#3784, which was merged on 2023-06-23."""
"""The first version without it."""


def verify(run: Run) -> Run:
    """Return the run, or say which of its keys contradict each other.

    Keys that are still None are left alone, so that a run can be verified again once they are set.
    """
    _verify_nodes(run.cluster)
    _verify_groups(run.sharding, run.cluster.gpus)
    _verify_zero_plus_plus(run.sharding, run.cluster)
    _verify_checkpointing(run.training)
    _verify_tuning(run.tuning)
    _verify_optimizer(run.training)
    _verify_float8(run)
    _verify_offload(run)
    _verify_reference(run)
    _verify_average(run)
    return run


def _verify_nodes(cluster: ClusterChoice) -> None:
    per_node = cluster.gpus_per_node
    if per_node is not None and cluster.gpus > per_node and cluster.gpus % per_node:
        below = cluster.gpus // per_node * per_node
        raise SpecError(
            f"cluster.gpus = {cluster.gpus} is not a multiple of gpus_per_node = {per_node}: "
            f"use {below} or {below + per_node} GPUs, or another gpus_per_node."
        )


def _verify_zero_plus_plus(sharding: ShardingChoice, cluster: ClusterChoice) -> None:
    """Refuse what stage 3 does; a secondary group larger than the world is the world to it."""
    settings, gpus = sharding.deepspeed, cluster.gpus
    if sharding.strategy not in PARTITIONED:
        return
    if settings.zero_quantized_gradients and not settings.reduce_scatter:
        raise SpecError(
            "sharding.deepspeed.zero_quantized_gradients = true needs reduce_scatter = true in "
            "DeepSpeed: leave one of the two out."
        )
    for key, used in (
        ("zero_hpz_partition_size", settings.zero_hpz_partition_size > 1),
        ("zero_quantized_weights", settings.zero_quantized_weights),
        ("zero_quantized_gradients", settings.zero_quantized_gradients),
    ):
        if used and _release(settings.version) < ZERO_PLUS_PLUS_ADDED:
            raise SpecError(
                f"sharding.deepspeed.{key}: DeepSpeed {settings.version} has no ZeRO++. Set "
                "sharding.deepspeed.version to 0.10.0 or newer, or leave the key out."
            )
    if settings.mics_shard_size is not None:
        _verify_mics(sharding, settings.mics_shard_size, cluster)
    size = settings.zero_hpz_partition_size
    if size < gpus and gpus % size:
        raise SpecError(
            f"sharding.deepspeed.zero_hpz_partition_size = {size} does not divide cluster.gpus = "
            f"{gpus}: use the GPUs of a node, or another divisor."
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _verify_mics(sharding: ShardingChoice, size: int, cluster: ClusterChoice) -> None:
    """Refuse MiCS where DeepSpeed does not have it, or not with these keys.

    Source: `_REMOVED_ZERO_CONFIG_KEYS` in deepspeed/runtime/config.py (0.19.7),
    `create_mics_comm_groups` in deepspeed/runtime/zero/mics_utils.py (0.19.6).
    """
    settings, key = sharding.deepspeed, f"sharding.deepspeed.mics_shard_size = {size}"
    if _release(settings.version) >= MICS_REMOVED:
        raise SpecError(
            f"{key}: DeepSpeed {settings.version} has no MiCS. Set sharding.deepspeed.version to "
            "0.19.6 or older, or use hsdp, or zero_hpz_partition_size."
        )
    if cluster.gpus % size:
        raise SpecError(f"{key} does not divide cluster.gpus = {cluster.gpus}.")
    per_node = cluster.gpus_per_node
    if settings.mics_hierarchical_params_gather and per_node and size < 2 * per_node:
        raise SpecError(
            f"{key} is one node of {per_node} GPUs: mics_hierarchical_params_gather needs several."
        )
    if sharding.offload_optimizer != "none" or sharding.offload_parameters != "none":
        raise SpecError(f"{key} with offloading is not modelled: leave one of the two out.")
    if (
        settings.zero_hpz_partition_size > 1
        or settings.zero_quantized_weights
        or settings.zero_quantized_gradients
    ):
        raise SpecError(f"{key} does not go with ZeRO++'s keys: leave one of them out.")


def _verify_checkpointing(training: TrainingChoice) -> None:
    if training.activation_checkpointing == "selective" and training.checkpoint_reentrant:
        raise SpecError(
            "training.checkpoint_reentrant = true does not go with activation_checkpointing = "
            "selective: PyTorch's reentrant checkpoint takes no policy. Set one of the two otherwise."
        )


def _verify_tuning(tuning: TuningChoice) -> None:
    """Let something be trained, and nothing that is quantised."""
    if tuning.trainable == "none" and not tuning.lora_rank:
        raise SpecError('tuning.trainable = "none" trains nothing: set lora_rank, or name a part.')
    if tuning.lora_rank and tuning.trainable == "all":
        raise SpecError(
            f'tuning.trainable = "all" leaves nothing frozen for adapters of rank '
            f"{tuning.lora_rank}: name the parts that are trained beside them, or none."
        )
    if tuning.base_quantization != "none" and tuning.trains_all:
        raise SpecError(
            f"tuning.base_quantization = {tuning.base_quantization!r}: quantised weights cannot be "
            "trained; set lora_rank, or name other parts in trainable."
        )


def _verify_optimizer(training: TrainingChoice) -> None:
    """Refuse states of their own dtype without a master, and what needs gradients that have gone.

    Gradients that go at once can be neither added up nor measured together.
    """
    if training.optimizer_state_dtype is not None and not training.master_copy:
        raise SpecError(
            f'training.optimizer_state_dtype = "{training.optimizer_state_dtype}" needs master_copy '
            "= true: without one the states have the parameters' dtype."
        )
    if not training.optimizer_in_backward:
        return
    for key, usual in (("gradient_accumulation_steps", 1), ("gradient_clipping", 0.0)):
        if getattr(training, key) != usual:
            raise SpecError(
                f"training.optimizer_in_backward = true does not go with {key} = "
                f"{getattr(training, key)}: set {key} = {usual}, or update after backward."
            )


def _verify_float8(run: Run) -> None:
    """Without a compiler each cast goes through fp32 copies, and nobody trains so."""
    scaling = run.training.fp8
    if scaling != "none" and not run.model.compile:
        raise SpecError(
            f'training.fp8 = "{scaling}" needs model.compile = true: uncompiled casts of torchao go '
            "through fp32 copies."
        )
    if scaling != "none" and not run.tuning.trains_all:
        raise SpecError(
            f'training.fp8 = "{scaling}" is not modelled beside frozen parameters by this version: '
            'set fp8 = "none", or train everything.'
        )
    if run.sharding.fp8_all_gather and scaling != "tensorwise":
        raise SpecError(
            "sharding.fp8_all_gather = true needs one scale per weight: set training.fp8 = "
            f'"tensorwise" instead of "{scaling}".'
        )


def _verify_offload(run: Run) -> None:
    training, sharding = run.training, run.sharding
    if training.offload_activations and not training.checkpoint_every:
        raise SpecError(
            "training.offload_activations = true with activation_checkpointing = "
            f"{training.activation_checkpointing}: only what whole checkpoints keep is offloaded. "
            "Set activation_checkpointing = full or every-K."
        )
    if (
        not run.tuning.trains_all
        and not sharding.offload_optimizer == sharding.offload_parameters == "none"
    ):
        raise SpecError(
            "sharding.offload_optimizer and offload_parameters are not modelled beside frozen "
            "parameters by this version: set both to none, or train everything."
        )
    if sharding.offload_parameters == "none":
        return
    obstacles = {
        "training.optimizer_in_backward = true": training.optimizer_in_backward,
        f"training.ema = {training.ema}": training.ema != "none",
        "training.reference_model = true": training.reference_model,
        "sharding.fp8_all_gather = true": sharding.fp8_all_gather,
    }
    for name, met in obstacles.items():
        if met:
            raise SpecError(
                f"{name} is not modelled with sharding.offload_parameters = "
                f"{sharding.offload_parameters} by this version: set one of the two otherwise."
            )


def _verify_reference(run: Run) -> None:
    ranks, tuning = run.sharding.reshard_after_forward, run.tuning
    if run.training.reference_model and (tuning.lora_rank or tuning.base_quantization != "none"):
        raise SpecError(
            "training.reference_model = true beside adapters or quantised weights: the model "
            "without its adapters is the reference there (disable_adapter of peft). Leave it out."
        )
    if run.training.reference_model and not isinstance(ranks, bool):
        raise SpecError(
            f"training.reference_model = true does not go with reshard_after_forward = {ranks}: "
            "no backward gathers the copy again. Use true or false."
        )


def _verify_average(run: Run) -> None:
    average = run.training.ema
    if average != "none" and not run.tuning.trains_all:
        raise SpecError(
            f"training.ema = {average!r} is not modelled beside frozen parameters by this version: "
            'set ema = "none", or train everything.'
        )


def _verify_groups(sharding: ShardingChoice, gpus: int) -> None:
    shard, replicate = sharding.shard_size, sharding.replicate_size
    if sharding.strategy == "none" and gpus > 1:
        raise SpecError(
            f'sharding.strategy = "none" is one GPU without a wrapper, but cluster.gpus = {gpus}: '
            "set gpus = 1, or another strategy."
        )
    for name, size in (("shard_size", shard), ("replicate_size", replicate)):
        if size is not None and gpus % size:
            raise SpecError(f"sharding.{name} = {size} does not divide cluster.gpus = {gpus}.")
    if shard is not None and replicate is not None and shard * replicate != gpus:
        raise SpecError(
            f"sharding.shard_size = {shard} times replicate_size = {replicate} is not "
            f"cluster.gpus = {gpus}: leave one of the two out."
        )
    ranks = sharding.reshard_after_forward
    if not isinstance(ranks, bool) and (shard or gpus) % ranks:
        raise SpecError(
            f"sharding.reshard_after_forward = {ranks} does not divide the {shard or gpus} ranks "
            "of a shard group."
        )
