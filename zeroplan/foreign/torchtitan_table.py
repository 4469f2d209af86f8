"""The keys of torchtitan's job configuration, versions 0.1 and 0.2.

Source: torchtitan/config_manager.py of 0.1 and torchtitan/config/job_config.py of 0.2. From 0.3 a
job is Python, whose sections have the same fields.
"""

from typing import Annotated, Final

from zeroplan.foreign.table import NAMES, WORD, Table, idle, joined, refused, renamed, same, table
from zeroplan.spec.words import Count, Range, Tokens

__all__ = ["FLOAT8", "PARALLEL", "TORCHTITAN"]

PARALLEL: Final = "parallelism."
FLOAT8: Final = "float8."
_DTYPES: Final = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
_TP: Final = "tensor parallelism is not modelled"
_PP: Final = "pipeline parallelism is not modelled"
_Degree = Annotated[int, Range(-1, 10**6)]

_TRAINING = (
    *joined("training.local_batch_size", "training.micro_batch_size", Count, "without it 8"),
    *joined("training.global_batch_size", "training.gradient_accumulation_steps", _Degree, "over local batch and GPUs; without it, or -1, no accumulation"),
    *joined("training.seq_len", "training.sequence_length", Tokens, "without it 2048"),
    *same("training.max_norm", "training.gradient_clipping", "without it 1.0"),
    *same("training.enable_cpu_offload", "sharding.offload_parameters", words={"true": "cpu", "false": "none"}),
    *same("training.dtype", "training.parameter_dtype", "without it float32", words=_DTYPES),
    *same("training.mixed_precision_param", "training.compute_dtype", "without it bfloat16", words=_DTYPES),
    *same("training.mixed_precision_reduce", "training.reduce_dtype", "without it float32", words=_DTYPES),
    *joined("training.compile", "model.compile", bool, "of 0.1; now compile.enable"),
    *renamed("training.batch_size", "training.local_batch_size", "the name in 0.1"),
    *renamed("training.data_parallel_degree", f"{PARALLEL}data_parallel_shard_degree", "the name in 0.1"),
    *renamed("training.data_parallel_shard_degree", f"{PARALLEL}data_parallel_shard_degree", "the place in 0.1"),
    *renamed("training.data_parallel_replicate_degree", f"{PARALLEL}data_parallel_replicate_degree", "the place in 0.1"),
    *idle("how data and garbage are handled, and for how long", "training.dataset", "training.dataset_path", "training.steps", "training.warmup_steps", "training.gc_freq", "training.gc_debug", "training.seed", "training.deterministic", "training.enable_loss_parallel", "training.debug_moe_force_load_balance"),
    *refused(_TP, "training.tensor_parallel_degree"),
    *refused("fp8 of 0.1's first form is not modelled", "training.fp8_linear", "training.enable_fp8_linear"),
)  # fmt: skip

_PARALLELISM = (
    *joined(f"{PARALLEL}data_parallel_shard_degree", "sharding.strategy, sharding.shard_size", _Degree, "above 1 fsdp2; -1 is what is left over"),
    *joined(f"{PARALLEL}data_parallel_replicate_degree", "sharding.strategy, sharding.replicate_size", Count, "above 1 hsdp, or ddp where nothing is sharded"),
    *joined(f"{PARALLEL}fsdp_reshard_after_forward", "sharding.reshard_after_forward, sharding.root_reshard_after_forward", WORD, "default, always or never"),
    *refused(_TP, f"{PARALLEL}tensor_parallel_degree", f"{PARALLEL}enable_async_tensor_parallel", f"{PARALLEL}expert_tensor_parallel_degree", "experimental.enable_async_tensor_parallel"),
    *refused(_PP, f"{PARALLEL}pipeline_parallel_degree", "experimental.pipeline_parallel_degree"),
    *refused("context parallelism is not modelled", f"{PARALLEL}context_parallel_degree", "experimental.context_parallel_degree"),
    *refused("expert parallelism is not modelled", f"{PARALLEL}expert_parallel_degree"),
    *refused("symmetric memory is not modelled", f"{PARALLEL}enable_fsdp_symm_mem"),
    *refused("compiled autograd is not modelled", f"{PARALLEL}enable_compiled_autograd", "experimental.enable_compiled_autograd"),
    *idle("of parallelism that is off", f"{PARALLEL}disable_loss_parallel", f"{PARALLEL}enable_sequence_parallel", f"{PARALLEL}spmd_backend", f"{PARALLEL}module_fqns_per_model_part", f"{PARALLEL}context_parallel_rotate_method", f"{PARALLEL}context_parallel_load_balancer", f"{PARALLEL}context_parallel_ptrr_mask_key", "experimental.context_parallel_rotate_method", f"{PARALLEL}expert_parallel_comm_backend"),
    *(entry for place in (PARALLEL, "experimental.") for name in ("split_points", "split_mode", "schedule", "schedule_csv", "microbatches", "microbatch_size", "layers_per_stage", "first_stage_less_layers", "last_stage_less_layers") for entry in idle("of a pipeline, which is off", f"{place}pipeline_parallel_{name}")),
)  # fmt: skip

_MODEL = (
    *joined("model.name", "model.source", WORD, "with the flavor a preset, where there is one"),
    *joined("model.flavor", "model.source", WORD, "the same"),
    *joined("model.hf_assets_path", "model.source", WORD, "its last part, where that is a preset"),
    *joined("model.converters", "training.fp8", NAMES, "float8 is modelled, nothing else"),
    *idle("paths and prints", "model.tokenizer_path", "model.print_after_conversion", "model.tokenizer_name"),
    *joined("model.norm_type", "model.norm", WORD, "of 0.1: rmsnorm is eager, fused_rmsnorm fused"),
    *same("optimizer.name", "training.optimizer", words={"adamw": "adamw", "adam": "adam"}),
    *same("optimizer.implementation", "training.optimizer_implementation", "without it fused", words={"fused": "fused", "foreach": "foreach", "for-loop": "for-loop"}),
    *joined("optimizer.fused", "training.optimizer_implementation", bool, "of 0.1: false is foreach"),
    *same("optimizer.early_step_in_backward", "training.optimizer_in_backward"),
    *idle("constants of the update", "optimizer.lr", "optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.weight_decay"),
    *joined("activation_checkpoint.mode", "training.activation_checkpointing", WORD, "without it selective"),
    *joined("activation_checkpoint.selective_ac_option", "training.activation_checkpointing", WORD, "op is selective, a number K is every-K; without it 2"),
    *idle("which products a policy recomputes, which it saves no bytes by", "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "activation_checkpoint.early_stop", "activation_checkpoint.preserve_rng_state", "activation_checkpoint.determinism_check", "activation_checkpoint.debug"),
    *refused("a memory budget's choice is not modelled", "activation_checkpoint.memory_budget", "activation_checkpoint.visualize_memory_budget_pareto"),
    *joined("compile.enable", "model.compile", bool, "of the components model and loss"),
    *joined("compile.components", "model.compile, model.loss", NAMES, "without it model and loss"),
    *idle("which compiler", "compile.backend"),
    *refused(_TP, "compile.enable_async_tensor_parallel"),
)  # fmt: skip

_FLOAT8 = (
    *joined(f"{FLOAT8}recipe_name", "training.fp8", WORD, "tensorwise or rowwise"),
    *joined(f"{FLOAT8}enable_float8_linear", "training.fp8", bool, "of 0.1: what model.converters says now"),
    *joined(f"{FLOAT8}enable_fsdp_float8_all_gather", "sharding.fp8_all_gather", bool, "where fp8 is on"),
    *joined(f"{FLOAT8}filter_fqns", "training.fp8", NAMES, "output alone: linear layers of blocks are modelled"),
    *idle("one small kernel per step", f"{FLOAT8}precompute_float8_dynamic_scale_for_fsdp"),
    *refused("weights that are cast again in backward are not modelled", f"{FLOAT8}force_recompute_fp8_weight_in_bwd"),
    *refused("emulated fp8 is not modelled", f"{FLOAT8}emulate"),
    *refused("experts in fp8 are not modelled", f"{FLOAT8}moe_fqns_prototype", f"{FLOAT8}moe_fqns"),
    *(entry for name in ("recipe_name", "enable_fsdp_float8_all_gather", "filter_fqns", "precompute_float8_dynamic_scale_for_fsdp", "force_recompute_fp8_weight_in_bwd", "emulate") for entry in renamed(f"quantize.linear.float8.{name}", f"{FLOAT8}{name}", "the place in late 0.2")),
    *idle("read with the converter mx only, which is refused", "mx", "quantize.linear.mx"),
    *refused("experts in fp8 are not modelled", "quantize.grouped_mm", unless=(None, False, 0, 1, "none", "", "rowwise", "mxfp8")),
)  # fmt: skip

_REST = (
    *idle("logs, profiles and checkpoints", "job", "profiling", "metrics", "checkpoint", "comm", "memory_estimation", "debug"),
    *idle("the learning rate's course", "lr_scheduler"),
    *idle("a validation between steps, which is not estimated", "validation"),
    *idle("imports of the user's own", "experimental.custom_import", "experimental.custom_args_module", "experimental.torch_spmd"),
    *refused("fault-tolerant replicas are not modelled", "fault_tolerance.enable", "fault_tolerance.semi_sync_method"),
    *idle("of fault tolerance, which is off", "fault_tolerance"),
)  # fmt: skip

TORCHTITAN: Final[Table] = table(_TRAINING, _PARALLELISM, _MODEL, _FLOAT8, _REST)
