"""The keys of a dump of transformers' TrainingArguments, and of trl's that add to them.

Source: transformers/training_args.py (5.24), names of older versions among them.
"""

from typing import Final

from zeroplan.foreign.accelerate_table import FSDP
from zeroplan.foreign.table import (
    NAMES,
    OFF,
    WORD,
    Table,
    idle,
    joined,
    refused,
    renamed,
    same,
    table,
)
from zeroplan.spec.words import Count, Tokens

__all__ = ["OPTIMIZERS", "PLUGIN", "TRAINING_ARGS"]

OPTIMIZERS: Final = {
    "adamw_torch": ("adamw", "foreach"),
    "adamw_torch_fused": ("adamw", "fused"),
    "adamw_hf": ("adamw", "for-loop"),
    "sgd": ("sgd", "foreach"),
    "adafactor": ("adafactor", None),
    "adamw_bnb_8bit": ("adamw-8bit", None),
    "adamw_8bit": ("adamw-8bit", None),
    "adamw_torch_4bit": ("adamw-4bit", None),
    "paged_adamw": ("paged-adamw", None),
    "paged_adamw_32bit": ("paged-adamw", None),
    "paged_adamw_8bit": ("paged-adamw-8bit", None),
    "lion_32bit": ("lion", None),
}
"""Optimizers by transformers' names, and how they run; None is the library's only way."""

PLUGIN: Final = (
    "version", "sharding_strategy", "reshard_after_forward", "backward_prefetch", "auto_wrap_policy",
    "transformer_layer_cls_to_wrap", "min_num_params", "offload_params", "state_dict_type",
    "limit_all_gathers", "use_orig_params", "sync_module_states", "forward_prefetch",
    "activation_checkpointing", "activation_checkpointing_offload", "cpu_ram_efficient_loading",
    "ignored_modules", "mixed_precision_policy", "cpu_offload", "backward_prefetch_policy",
)  # fmt: skip
"""Keys of `fsdp_config`, which are accelerate's without a prefix."""

_USED = (
    *joined("per_device_train_batch_size", "training.micro_batch_size", Count, "without it 8"),
    *renamed("per_gpu_train_batch_size", "per_device_train_batch_size"),
    *joined("gradient_accumulation_steps", "training.gradient_accumulation_steps", Count, "without it 1"),
    *same("max_grad_norm", "training.gradient_clipping", "without it 1.0"),
    *joined("bf16", "training.compute_dtype", bool, "mixed precision"),
    *joined("fp16", "training.compute_dtype", bool, "mixed precision"),
    *joined("tf32", "training.compute_dtype", bool, "beside neither bf16 nor fp16"),
    *joined("optim", "training.optimizer, training.optimizer_implementation", WORD, "without it adamw_torch_fused"),
    *joined("adafactor", "training.optimizer", bool, "old: optim adafactor"),
    *joined("gradient_checkpointing", "training.activation_checkpointing", bool, "true is full"),
    *renamed("activation_checkpointing", "gradient_checkpointing", "the name since 5.20"),
    *joined("gradient_checkpointing_kwargs.use_reentrant", "training.checkpoint_reentrant", bool, "without it false"),
    *renamed("activation_checkpointing_kwargs.use_reentrant", "gradient_checkpointing_kwargs.use_reentrant", "the name since 5.20"),
    *idle("of checkpoints", "gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
    *same("torch_compile", "model.compile"),
    *idle("which compiler", "torch_compile_backend", "torch_compile_mode"),
    *joined("fsdp", "sharding.strategy", NAMES, "with fsdp_config; version 2 where that has none"),
    *joined("deepspeed", "sharding.strategy", WORD, "a DeepSpeed configuration, as a path or inline, which is read too"),
    *joined("ddp_bucket_cap_mb", "sharding.bucket_bytes", Count, "MiB; without it 25"),
    *joined("accelerator_config.gradient_accumulation_kwargs.sync_each_batch", "sharding.synchronize_gradients", bool, "without it gradients are reduced in the last micro-step"),
    *joined("max_length", "training.sequence_length", Tokens, "trl's"),
    *renamed("max_seq_length", "max_length", "trl's old name"),
    *joined("use_cpu", "", bool, "true trains on the CPU, which is not what is estimated"),
    *renamed("no_cuda", "use_cpu"),
)  # fmt: skip

_FSDP_CONFIG = (
    *(entry for name in PLUGIN for prefix in ("", "fsdp_") for entry in joined(f"fsdp_config.{prefix}{name}", "", WORD if name != "transformer_layer_cls_to_wrap" else NAMES, f"read as {FSDP}{name} of accelerate")),
    *refused("XLA's FSDP is not modelled", "fsdp_config.xla", "fsdp_config.xla_fsdp_v2", "xla"),
    *idle("XLA only", "fsdp_config.xla_fsdp_grad_ckpt", "fsdp_config.xla_fsdp_settings"),
    *joined("fsdp_transformer_layer_cls_to_wrap", "", NAMES, "old: the same of fsdp_config"),
    *idle("of fsdp_config", "fsdp_min_num_params"),
)  # fmt: skip

_REFUSED = (
    *refused("Liger's fused layers are not modelled; say --loss fused-linear for its loss", "use_liger_kernel"),
    *idle("Liger only", "liger_kernel_config"),
    *refused("it changes the batch while the job runs", "auto_find_batch_size"),
    *refused("label smoothing's copy of the logits is not modelled", "label_smoothing_factor", unless=(None, 0, False)),
    *refused("packed sequences are not modelled", "packing", "padding_free", "packing_strategy", "neat_packing", unless=(*OFF, "bfd", "wrapped", "bfd_split", "bfd-requeue")),
    *refused("an evaluation without accumulation of its own is not estimated", "eval_on_start"),
    *refused("tensor parallelism is not modelled", "tp_size", "tensor_parallel_size", "parallelism_config.tp_size"),
    *refused("context parallelism is not modelled", "parallelism_config.cp_size"),
    *refused("sequence parallelism is not modelled", "parallelism_config.sp_size"),
    *joined("parallelism_config.dp_replicate_size", "sharding.replicate_size", Count, "copies"),
    *joined("parallelism_config.dp_shard_size", "sharding.shard_size", Count, "ranks of a copy"),
    *refused("apex is not modelled", "apex", "use_apex", unless=(*OFF, "auto")),
    *refused("layer-wise or low-rank gradients are not modelled", "optim_target_modules"),
)  # fmt: skip

_IDLE = (
    *idle("the learning rate's course and the length of the job", "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim_args"),
    *idle("logs, saves and pushes", "output_dir", "overwrite_output_dir", "logging_dir", "logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node", "logging_nan_inf_filter", "include_num_input_tokens_seen", "include_tokens_per_second", "log_level", "log_level_replica", "disable_tqdm", "report_to", "run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "save_only_model", "save_strategy", "save_steps", "save_on_each_node", "save_total_limit", "save_safetensors", "enable_jit_checkpoint", "push_to_hub", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "skip_memory_metrics", "debug", "resume_from_checkpoint", "restore_callback_states_from_checkpoint"),
    *idle("evaluation, which is not estimated", "eval_strategy", "evaluation_strategy", "eval_steps", "eval_delay", "per_device_eval_batch_size", "per_gpu_eval_batch_size", "prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps", "include_for_metrics", "include_inputs_for_metrics", "batch_eval_metrics", "bf16_full_eval", "fp16_full_eval", "do_eval", "do_predict", "jit_mode_eval", "use_cache"),
    *idle("how data are loaded and seeded", "ignore_data_skip", "full_determinism", "seed", "data_seed", "dataloader_drop_last", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order", "remove_unused_columns", "label_names", "group_by_length", "train_sampling_strategy", "length_column_name", "do_train", "past_index", "accelerator_config", "split_batches", "dispatch_batches", "dataset_num_proc", "dataset_text_field", "dataset_kwargs", "completion_only_loss", "assistant_only_loss", "average_tokens_across_devices", "eos_token", "pad_token", "chat_template_path", "shuffle_dataset", "eval_packing"),
    *idle("how processes find one another", "local_rank", "ddp_backend", "ddp_timeout", "ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph", "tpu_num_cores", "tpu_metrics_debug", "mp_parameters", "ray_scope", "use_mps_device", "use_ipex", "fp16_backend", "half_precision_backend", "fp16_opt_level", "torchdynamo", "no_sync"),
    *idle("noise and pauses", "neftune_noise_alpha", "torch_empty_cache_steps"),
)  # fmt: skip

TRAINING_ARGS: Final[Table] = table(_USED, _FSDP_CONFIG, _REFUSED, _IDLE)
