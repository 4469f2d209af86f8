"""The keys of accelerate's configuration, of its FSDP and DeepSpeed sections among them.

Source: ClusterConfig in accelerate/commands/config/config_args.py, commands/launch.py and
FullyShardedDataParallelPlugin, DeepSpeedPlugin and ParallelismConfig of accelerate 1.15.
"""

from typing import Annotated, Final

from zeroplan.foreign.table import NAMES, WORD, Table, idle, joined, refused, renamed, same, table
from zeroplan.spec.words import Count, NormLimit, Offload, Range

__all__ = ["ACCELERATE", "DS", "FSDP", "MESH", "STRATEGIES", "STRATEGY_WORDS"]

FSDP: Final = "fsdp_config.fsdp_"
DS: Final = "deepspeed_config."
MESH: Final = "parallelism_config.parallelism_config_"

STRATEGIES: Final = (
    "full_shard",
    "shard_grad_op",
    "no_shard",
    "hybrid_shard",
    "hybrid_shard_zero2",
)
"""FSDP1's strategies; numbers count from 1 (`FSDP_SHARDING_STRATEGY`, utils/constants.py)."""

PLUGIN_NAMES: Final = {
    "cpu_offload": "offload_params",
    "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
}
"""Fields of the plugin that the file calls otherwise."""

_NUMBERED: Final = {str(number): name for number, name in enumerate(STRATEGIES, 1)}
_NAMED: Final = {name: name for name in STRATEGIES} | {"_hybrid_shard_zero2": STRATEGIES[-1]}
STRATEGY_WORDS: Final[dict[str, str]] = {**_NUMBERED, **_NAMED}
_PREFETCH: Final = {
    "backward_pre": "pre", "1": "pre", "backward_post": "post", "2": "post",
    "no_prefetch": "none", "3": "none",
}  # fmt: skip
_LOADING: Final = {"true": "rank0", "false": "every-rank"}
_CHECKPOINTS: Final = {"true": "full", "false": "none"}

_TOP = (
    *joined("distributed_type", "sharding.strategy", WORD, "FSDP, DEEPSPEED, MULTI_GPU (ddp) or NO"),
    *joined("num_processes", "cluster.gpus", Count, "one GPU each"),
    *joined("num_machines", "cluster.gpus_per_node", Count, "processes over machines"),
    *joined("mixed_precision", "training.compute_dtype, training.reduce_dtype", WORD, "no is fp32; FSDP reduces in the same dtype; a bare no is false in YAML 1.1"),
    *joined("use_cpu", "", bool, "true trains on the CPU, which is not what is estimated"),
    *idle("how processes find one another", "compute_environment", "machine_rank", "main_process_ip", "main_process_port", "main_training_function", "rdzv_backend", "same_network", "gpu_ids", "enable_cpu_affinity", "mpirun_config", "deepspeed_hostfile", "command_file", "commands", "rdzv_endpoint"),
    *idle("logs and checks", "debug"),
    *idle("TPUs only", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_env"),
    *joined("dynamo_config.dynamo_backend", "model.compile", WORD, "INDUCTOR compiles; NO and EAGER do not"),
    *idle("how the compiler is asked", "dynamo_config"),
    *renamed("dynamo_backend", "dynamo_config.dynamo_backend"),
    *joined("fp16", "training.compute_dtype", bool, "of old versions: mixed_precision fp16"),
    *refused("recipes of fp8 are not modelled for accelerate's backends", "fp8_config", "fp8_backend"),
    *refused("Megatron's tensor and pipeline parallelism is not modelled", "megatron_lm_config"),
    *same("gradient_accumulation_steps", "training.gradient_accumulation_steps"),
)  # fmt: skip

_FSDP_FIELDS = (
    *joined(f"{FSDP}version", "sharding.strategy", Annotated[int, Range(1, 2)], "1 is fsdp1, 2 is fsdp2; without it 1"),
    *joined(f"{FSDP}sharding_strategy", "sharding.strategy, sharding.shard_size, sharding.reshard_after_forward", WORD, "1 FULL_SHARD, 2 SHARD_GRAD_OP, 3 NO_SHARD, 4 HYBRID_SHARD, 5 HYBRID_SHARD_ZERO2"),
    *joined(f"{FSDP}reshard_after_forward", "sharding.reshard_after_forward", WORD, "version 2: true or false; version 1: a sharding strategy"),
    *same(f"{FSDP}backward_prefetch", "sharding.backward_prefetch", "without it none", words=_PREFETCH),
    *renamed(f"{FSDP}backward_prefetch_policy", f"{FSDP}backward_prefetch"),
    *joined(f"{FSDP}mixed_precision_policy", "training.compute_dtype, training.reduce_dtype", WORD, "one dtype for both"),
    *joined(f"{FSDP}auto_wrap_policy", "", WORD, "TRANSFORMER_BASED_WRAP is what is modelled: a unit per layer"),
    *joined(f"{FSDP}transformer_layer_cls_to_wrap", "", NAMES, "compared with the model's own class; without it that one"),
    *idle("of SIZE_BASED_WRAP only, which is refused", f"{FSDP}min_num_params"),
    *same(f"{FSDP}offload_params", "sharding.offload_parameters", "parameters, gradients and states", words={"true": "cpu", "false": "none"}),
    *refused("modules that are left out of sharding are not modelled", f"{FSDP}ignored_modules"),
    *idle("how a checkpoint is saved", f"{FSDP}state_dict_type", f"{FSDP}state_dict_config", f"{FSDP}optim_state_dict_config"),
    *refused("gathers without a limit in flight are not modelled", f"{FSDP}limit_all_gathers", unless=(None, True)),
    *same(f"{FSDP}use_orig_params", "sharding.use_orig_params", "FSDP2 always does"),
    *idle("how weights come in", f"{FSDP}param_init_fn", f"{FSDP}sync_module_states"),
    *refused("FSDP1's forward prefetch is not modelled", f"{FSDP}forward_prefetch"),
    *same(f"{FSDP}activation_checkpointing", "training.activation_checkpointing", words=_CHECKPOINTS),
    *same(f"{FSDP}activation_checkpointing_offload", "training.offload_activations"),
    *same(f"{FSDP}cpu_ram_efficient_loading", "training.load", "true: one process of a node reads the weights", words=_LOADING),
)  # fmt: skip

_PLAIN = (
    *(
        entry
        for each in _FSDP_FIELDS
        for entry in renamed(
            f"fsdp_config.{each.key.removeprefix(FSDP)}",
            each.becomes if each.use == "renamed" else each.key,
            "a name without its prefix",
        )
    ),
    *(
        entry
        for name, to in PLUGIN_NAMES.items()
        for prefix in ("fsdp_", "")
        for entry in renamed(f"fsdp_config.{prefix}{name}", f"{FSDP}{to}", "the plugin's name")
    ),
)

_DEEPSPEED_FIELDS = (
    *joined(f"{DS}zero_stage", "sharding.strategy", Annotated[int, Range(0, 3)], "0 to 3 are zero0 to zero3; without it 2"),
    *joined(f"{DS}offload_optimizer_device", "sharding.offload_optimizer", Offload, "stages 1 to 3"),
    *joined(f"{DS}offload_param_device", "sharding.offload_parameters", Offload, "stage 3 only"),
    *joined(f"{DS}gradient_accumulation_steps", "training.gradient_accumulation_steps", Count, "micro-steps per optimizer step"),
    *joined(f"{DS}gradient_clipping", "training.gradient_clipping", NormLimit, "a norm"),
    *joined(f"{DS}deepspeed_config_file", "", str, "a DeepSpeed configuration, which is read too"),
    *idle("folders", f"{DS}offload_optimizer_nvme_path", f"{DS}offload_param_nvme_path"),
    *idle("how weights come in and out", f"{DS}zero3_init_flag", f"{DS}zero3_save_16bit_model"),
    *idle("how processes find one another", f"{DS}deepspeed_multinode_launcher", f"{DS}deepspeed_hostfile", f"{DS}deepspeed_exclusion_filter", f"{DS}deepspeed_inclusion_filter"),
    *idle("which loader sets the batch", f"{DS}is_train_batch_min"),
    *refused("modules that are gathered as one are not modelled", f"{DS}deepspeed_moe_layer_cls_names", f"{DS}transformer_moe_cls_names"),
    *refused("MS-AMP is not modelled", f"{DS}enable_msamp"),
    *idle("MS-AMP only", f"{DS}msamp_opt_level"),
)  # fmt: skip

_MESH_FIELDS = (
    *joined(f"{MESH}dp_replicate_size", "sharding.replicate_size", Count, "copies; above 1 FSDP2 is hsdp"),
    *joined(f"{MESH}dp_shard_size", "sharding.shard_size", Count, "ranks of a copy"),
    *refused("tensor parallelism is not modelled", f"{MESH}tp_size"),
    *refused("context parallelism is not modelled", f"{MESH}cp_size"),
    *refused("sequence parallelism is not modelled", f"{MESH}sp_size"),
    *idle("of context or sequence parallelism", f"{MESH}cp_backend", f"{MESH}cp_comm_strategy", f"{MESH}sp_backend", f"{MESH}sp_seq_length", f"{MESH}sp_seq_length_is_variable", f"{MESH}sp_attn_implementation"),
    *(entry for name in ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size") for entry in renamed(f"parallelism_config.{name}", f"{MESH}{name}", "a name without its prefix")),
)  # fmt: skip

ACCELERATE: Final[Table] = table(_TOP, _FSDP_FIELDS, _PLAIN, _DEEPSPEED_FIELDS, _MESH_FIELDS)
