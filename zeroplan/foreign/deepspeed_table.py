"""The keys of a DeepSpeed configuration.

Source: deepspeed/runtime/config.py, runtime/constants.py, runtime/zero/config.py,
runtime/zero/offload_config.py and runtime/precision_config.py, DeepSpeed 0.19.8; for what it has
dropped, `_REMOVED_TOP_LEVEL_CONFIG_KEYS` there and the documentation of older versions.
"""

from typing import Annotated, Final

from zeroplan.foreign.table import OFF, Table, idle, joined, refused, renamed, same, table
from zeroplan.spec.words import Count, Elements, NormLimit, Offload, Range, Share

__all__ = ["DEEPSPEED", "FLAT_ONLY", "STAGE3", "ZERO"]

ZERO: Final = "zero_optimization."
OPTIMIZER: Final = f"{ZERO}offload_optimizer."
PARAM: Final = f"{ZERO}offload_param."
DS: Final = "sharding.deepspeed."

WORDS_OF_DTYPES: Final = {
    "fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "float32": "fp32", "float16": "fp16",
    "bfloat16": "bf16", "none": "auto",
}  # fmt: skip

STAGE3: Final = (
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "gather_16bit_weights_on_model_save",
    "module_granularity_threshold",
    "use_all_reduce_for_fetch_params",
    "allgather_sequential",
)
"""Fields whose alias in a file begins with stage3_; DeepSpeed takes both names."""

FLAT_ONLY: Final = (
    "allgather_partitions",
    "allgather_bucket_size",
    "use_multi_rank_bucket_allreduce",
    "round_robin_gradients",
    "ignore_unused_parameters",
    "legacy_stage1",
    "compute_grad_norm",
    "parameter_alignment",
)
"""Fields that stages 1 and 2 read and stage 3 does not."""

REMOVED: Final = "DeepSpeed 0.19.8 has removed it; a model that does not ask for it trains without"

_BATCH = (
    *joined("train_batch_size", "training.micro_batch_size, training.gradient_accumulation_steps", Count, "micro-batch times accumulation times GPUs; what is missing follows from the rest"),
    *joined("train_micro_batch_size_per_gpu", "training.micro_batch_size", Count, "sequences per GPU per micro-step"),
    *joined("gradient_accumulation_steps", "training.gradient_accumulation_steps", Count, "micro-steps per optimizer step"),
    *joined("gradient_clipping", "training.gradient_clipping", NormLimit, "auto is the trainer's max_grad_norm"),
)  # fmt: skip

_PRECISION = (
    *joined("bf16.enabled", "training.compute_dtype", bool, "auto is the trainer's; it is asked for, not guessed"),
    *joined("fp16.enabled", "training.compute_dtype", bool, "the same"),
    *renamed("bfloat16.enabled", "bf16.enabled"),
    *renamed("bfloat16.check_grad_overflow", "bf16.check_grad_overflow"),
    *renamed("bfloat16.immediate_grad_update", "bf16.immediate_grad_update"),
    *idle("scales the loss", "fp16.loss_scale", "fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis", "fp16.consecutive_hysteresis", "fp16.min_loss_scale", "fp16.opt_level"),
    *idle("casts a step's inputs, which are token ids", "fp16.auto_cast"),
    *idle("a check of a few bytes", "bf16.check_grad_overflow", "bf16.check_overflow"),
    *refused("gradients of the bf16 optimizer without ZeRO's are not modelled", "bf16.immediate_grad_update"),
    *refused("low-precision master weights are not modelled", "fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states", "fp16.master_weights_and_grads"),
    *refused("torch.autocast under DeepSpeed is not modelled", "torch_autocast", "ddp_bf16"),
    *same("communication_data_type", f"{DS}communication_data_type", words=WORDS_OF_DTYPES),
    *same("data_types.grad_accum_dtype", f"{DS}grad_accum_dtype", words=WORDS_OF_DTYPES),
    *refused("parameters of another dtype than the compute dtype are not modelled", "data_types.param_dtype"),
    *refused("modules that stay fp32 are not modelled", "data_types.keep_in_fp32_modules", unless=(*OFF, "auto")),
    *idle("buffers are a few bytes", "data_types.buffer_dtype"),
)  # fmt: skip

_ZERO_FIELDS = (
    *joined(f"{ZERO}stage", "sharding.strategy", Annotated[int, Range(0, 3)], "0 to 3 are zero0 to zero3"),
    *joined("zero_optimization", "sharding.strategy", bool, "the form of old versions: true is stage 1"),
    *same(f"{ZERO}contiguous_gradients", f"{DS}contiguous_gradients"),
    *same(f"{ZERO}reduce_scatter", f"{DS}reduce_scatter"),
    *joined(f"{ZERO}reduce_bucket_size", f"{DS}reduce_bucket_size", Elements, "auto is the hidden size squared"),
    *same(f"{ZERO}use_multi_rank_bucket_allreduce", f"{DS}use_multi_rank_bucket_allreduce"),
    *same(f"{ZERO}allgather_bucket_size", f"{DS}allgather_bucket_size"),
    *renamed("allgather_size", f"{ZERO}allgather_bucket_size"),
    *idle("DeepSpeed 0.19.8 never asks for it", f"{ZERO}allgather_partitions"),
    *same(f"{ZERO}overlap_comm", f"{DS}overlap_comm"),
    *same(f"{ZERO}round_robin_gradients", f"{DS}round_robin_gradients"),
    *same(f"{ZERO}sub_group_size", f"{DS}sub_group_size"),
    *refused("the step is modelled with its gradient norm", f"{ZERO}compute_grad_norm", unless=(True, None)),
    *idle("concerns checkpoints only", f"{ZERO}load_from_fp32_weights", f"{ZERO}elastic_checkpoint", f"{ZERO}pipeline_loading_checkpoint"),
    *idle("concerns errors and logs only", f"{ZERO}ignore_unused_parameters", f"{ZERO}log_trace_cache_warnings", f"{ZERO}enable_sanity_checks"),
    *refused("the stage 1 of old versions is not modelled", f"{ZERO}legacy_stage1"),
    *refused("padding between parameters is not modelled", f"{ZERO}parameter_alignment"),
    *refused("ZenFlow is not modelled", f"{ZERO}zenflow"),
    *refused("Muon's momentum outside its NVMe file is not modelled", f"{ZERO}save_muon_momentum_buffer_in_memory"),
    *idle("a linear layer that saves what autograd saves anyway", f"{ZERO}memory_efficient_linear"),
    *idle("how modules are set up", f"{ZERO}override_module_apply"),
    *refused("modules that are gathered as one are not modelled", f"{ZERO}leaf_module"),
    *idle("a key of old versions; DeepSpeed 0.19.8 refuses it", f"{ZERO}grad_hooks"),
)  # fmt: skip

_STAGE3_FIELDS = (
    *joined(f"{ZERO}stage3_prefetch_bucket_size", f"{DS}stage3_prefetch_bucket_size", Elements, "auto is nine tenths of the hidden size squared, rounded down"),
    *joined(f"{ZERO}stage3_param_persistence_threshold", f"{DS}stage3_param_persistence_threshold", Elements, "auto is ten times the hidden size"),
    *same(f"{ZERO}stage3_max_live_parameters", f"{DS}stage3_max_live_parameters"),
    *same(f"{ZERO}stage3_max_reuse_distance", f"{DS}stage3_max_reuse_distance"),
    *refused("a bound on persistent parameters is not modelled", f"{ZERO}stage3_model_persistence_threshold", unless=(None, "auto", 2**63 - 1)),
    *idle("how a checkpoint is saved", f"{ZERO}stage3_gather_16bit_weights_on_model_save"),
    *renamed(f"{ZERO}stage3_gather_fp16_weights_on_model_save", f"{ZERO}stage3_gather_16bit_weights_on_model_save"),
    *refused("modules that are fetched as one are not modelled", f"{ZERO}stage3_module_granularity_threshold", unless=(None, 0)),
    *refused("fetching by all-reduce is not modelled", f"{ZERO}stage3_use_all_reduce_for_fetch_params"),
    *refused("gathering parameters one by one is not modelled", f"{ZERO}stage3_allgather_sequential"),
    *(entry for name in STAGE3 for entry in renamed(f"{ZERO}{name}", f"{ZERO}stage3_{name}", "the field's own name")),
    *same(f"{ZERO}zero_hpz_partition_size", f"{DS}zero_hpz_partition_size"),
    *same(f"{ZERO}zero_quantized_weights", f"{DS}zero_quantized_weights"),
    *same(f"{ZERO}zero_quantized_gradients", f"{DS}zero_quantized_gradients"),
    *refused("frozen weights that are stored as int8 are not modelled", f"{ZERO}zero_quantized_nontrainable_weights"),
    *joined(f"{ZERO}mics_shard_size", f"{DS}mics_shard_size", Annotated[int, Range(-1, 10**6)], "up to version 0.19.6; -1 is off"),
    *same(f"{ZERO}mics_hierarchical_params_gather", f"{DS}mics_hierarchical_params_gather"),
    *refused("LoCo's error feedback is not modelled", f"{ZERO}zeropp_loco_param"),
)  # fmt: skip

_OFFLOAD = (
    *joined(f"{OPTIMIZER}device", "sharding.offload_optimizer", Offload, "stages 1 to 3"),
    *joined(f"{PARAM}device", "sharding.offload_parameters", Offload, "stage 3 only"),
    *joined(f"{OPTIMIZER}pin_memory", "sharding.offload_pin_memory", bool, "one for both"),
    *joined(f"{PARAM}pin_memory", "sharding.offload_pin_memory", bool, "one for both"),
    *same(f"{OPTIMIZER}buffer_count", f"{DS}offload_optimizer_buffer_count"),
    *same(f"{OPTIMIZER}ratio", f"{DS}offload_optimizer_ratio"),
    *same(f"{PARAM}buffer_count", f"{DS}offload_param_buffer_count"),
    *same(f"{PARAM}buffer_size", f"{DS}offload_param_buffer_size"),
    *same(f"{PARAM}max_in_cpu", f"{DS}offload_param_max_in_cpu"),
    *idle("a folder", f"{OPTIMIZER}nvme_path", f"{PARAM}nvme_path"),
    *idle("how NVMe is read and written", f"{OPTIMIZER}pipeline_read", f"{OPTIMIZER}pipeline_write", f"{OPTIMIZER}pipeline", f"{OPTIMIZER}buffer_size", "aio"),
    *idle("how the states are made", f"{OPTIMIZER}fast_init"),
    *refused("SuperOffload is not modelled", f"{OPTIMIZER}super_offload"),
    *idle("SuperOffload only", f"{OPTIMIZER}cpuadam_cores_perc"),
    *joined(f"{ZERO}cpu_offload", "sharding.offload_optimizer", bool, "old: offload_optimizer to the CPU"),
    *joined(f"{ZERO}cpu_offload_param", "sharding.offload_parameters", bool, "old: offload_param to the CPU"),
    *renamed(f"{ZERO}cpu_offload_params", f"{ZERO}cpu_offload_param"),
    *joined(f"{ZERO}cpu_offload_use_pin_memory", "sharding.offload_pin_memory", bool, "old: pin_memory"),
)  # fmt: skip

_OPTIMIZER = (
    *joined("optimizer.type", "training.optimizer", str, "Adam, AdamW, Lion, SGD, Muon"),
    *joined("optimizer.params.torch_adam", "training.optimizer_implementation", bool, "true is PyTorch's own, foreach"),
    *joined("optimizer.params.adam_w_mode", "training.optimizer", bool, "false makes Adam of Adam"),
    *joined("optimizer.params.momentum", "training.optimizer", Share, "of SGD: one state per parameter"),
    *idle("constants of the update", "optimizer.params", "optimizer.legacy_fusion"),
    *idle("the learning rate's course", "scheduler"),
    *idle("which optimizers are let through", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
    *idle("factors of the gradients", "prescale_gradients", "gradient_predivide_factor", "gradient_allreduce_op"),
    *idle("who counts the micro-steps", "managed_gradient_accumulation"),
)  # fmt: skip

_REST = (
    *idle("logs, profiles and checkpoints", "steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "flops_profiler", "comms_logger", "tensorboard", "wandb", "csv_monitor", "comet", "monitor_config", "log_level", "checkpoint", "timers", "datastates", "nebula", "data_types.bf16", "verbose", "autotuning.results_dir", "autotuning.exps_dir"),
    *idle("how data are loaded", "dataloader_drop_last", "seed", "vocabulary_size"),
    *idle("when Python collects its garbage", "disable_python_gc"),
    *idle(REMOVED, "sparse_attention", "eigenvalue"),
    *idle("for pieces of a model-parallel group; off without deepspeed.checkpointing", "activation_checkpointing.partition_activations", "activation_checkpointing.contiguous_memory_optimization", "activation_checkpointing.number_checkpoints", "activation_checkpointing.synchronize_checkpoint_boundary", "activation_checkpointing.profile"),
    *refused("say what the model's checkpoints do with --offload-activations", "activation_checkpointing.cpu_checkpointing"),
    *refused("a bug's workaround that moves parameters otherwise", "disable_allgather"),
    *refused("sequence parallelism is not modelled", "sequence_parallel_size", "seq_parallel_communication_data_type", unless=(*OFF, "fp32", "bf16", "fp16")),
    *refused("tensor parallelism is not modelled", "tensor_parallel.autotp_size", "tensor_parallel.tp_size", "tensor_parallel.tp.tp_size", "tensor_parallel.enabled", "inference_tp_size"),
    *idle("how tensor parallelism is set up", "tensor_parallel"),
    *refused("pipeline parallelism is not modelled", "pipeline.stages", "pipeline_parallel_size", unless=(*OFF, "auto")),
    *idle("of a pipeline", "pipeline"),
    *refused("expert parallelism is not modelled", "expert_parallel", "use_data_before_expert_parallelism", "moe"),
    *refused("the hybrid engine is not modelled", "hybrid_engine"),
    *refused("a course of sequence lengths is not modelled", "curriculum_learning", "data_efficiency"),
    *refused("dropped layers are not modelled", "progressive_layer_drop"),
    *refused("quantised or compressed training is not modelled", "compression_training", "quantize_training", "weight_quantization", "msamp"),
    *refused("sparse gradients are not modelled", "sparse_gradients"),
    *refused("apex's amp is not modelled", "amp"),
    *refused("it sets the batch while the job runs", "elasticity", "autotuning"),
    *refused("DeepCompile and compiled engines are not modelled", "compile", "graph_harvesting"),
)  # fmt: skip

DEEPSPEED: Final[Table] = table(
    _BATCH, _PRECISION, _ZERO_FIELDS, _STAGE3_FIELDS, _OFFLOAD, _OPTIMIZER, _REST
)
