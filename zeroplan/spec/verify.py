"""Rules that join keys of a run; those of a single key stand in its type."""

from zeroplan.errors import SpecError
from zeroplan.spec.run import ClusterChoice, Run, ShardingChoice, TrainingChoice, TuningChoice

__all__ = ["verify"]


def verify(run: Run) -> Run:
    """Return the run, or say which of its keys contradict each other.

    Keys that are still None are left alone, so that a run can be verified again once they are set.
    """
    _verify_nodes(run.cluster)
    _verify_groups(run.sharding, run.cluster.gpus)
    _verify_zero_plus_plus(run.sharding, run.cluster.gpus)
    _verify_checkpointing(run.training)
    _verify_tuning(run.tuning)
    _verify_optimizer_in_backward(run.training)
    _verify_float8(run)
    return run


def _verify_nodes(cluster: ClusterChoice) -> None:
    per_node = cluster.gpus_per_node
    if per_node is not None and cluster.gpus > per_node and cluster.gpus % per_node:
        below = cluster.gpus // per_node * per_node
        raise SpecError(
            f"cluster.gpus = {cluster.gpus} is not a multiple of gpus_per_node = {per_node}: "
            f"use {below} or {below + per_node} GPUs, or another gpus_per_node."
        )


def _verify_zero_plus_plus(sharding: ShardingChoice, gpus: int) -> None:
    """Refuse what stage 3 does; a secondary group larger than the world is the world to it."""
    settings = sharding.deepspeed
    if sharding.strategy not in (None, "zero3"):
        return
    if settings.zero_quantized_gradients and not settings.reduce_scatter:
        raise SpecError(
            "sharding.deepspeed.zero_quantized_gradients = true needs reduce_scatter = true in "
            "DeepSpeed: leave one of the two out."
        )
    size = settings.zero_hpz_partition_size
    if size < gpus and gpus % size:
        raise SpecError(
            f"sharding.deepspeed.zero_hpz_partition_size = {size} does not divide cluster.gpus = "
            f"{gpus}: use the GPUs of a node, or another divisor."
        )


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
    everything = not tuning.lora_rank and tuning.trainable in (None, "all")
    if tuning.base_quantization != "none" and everything:
        raise SpecError(
            f"tuning.base_quantization = {tuning.base_quantization!r}: quantised weights cannot be "
            "trained; set lora_rank, or name other parts in trainable."
        )


def _verify_optimizer_in_backward(training: TrainingChoice) -> None:
    """Refuse what needs gradients that have gone: adding them up, and the norm of all of them."""
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
    if run.sharding.fp8_all_gather and scaling != "tensorwise":
        raise SpecError(
            "sharding.fp8_all_gather = true needs one scale per weight: set training.fp8 = "
            f'"tensorwise" instead of "{scaling}".'
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
