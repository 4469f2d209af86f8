"""accelerate's configuration: what its keys mean together.

Source: accelerate 1.15, utils/dataclasses.py, utils/launch.py and commands/launch.py, whose
defaults a file leaves in place.
"""

from typing import Any, Final

from zeroplan.foreign.accelerate_table import DS, FSDP, MESH, STRATEGIES, STRATEGY_WORDS
from zeroplan.foreign.batch import GPUS, known, known_gpus
from zeroplan.foreign.deepspeed import STAGES
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.sorting import Found
from zeroplan.foreign.wrapping import check_classes

__all__ = ["read_accelerate", "read_fsdp"]

DTYPES: Final = {
    "no": "fp32", "false": "fp32", "fp32": "fp32", "none": "fp32", "bf16": "bf16", "fp16": "fp16",
}  # fmt: skip
USUAL_STAGE: Final = 2
"""`DeepSpeedPlugin.zero_stage` where a file has none."""


def read_accelerate(found: Found, draft: Draft, asked: Asked) -> None:
    """Set what the joined keys of an accelerate configuration amount to."""
    kind = str(found.get("distributed_type") or "").upper()
    if found.get("use_cpu"):
        draft.remark("use_cpu = true: accelerate trains on the CPU; estimated as if on GPUs")
    _processes(found, draft, asked)
    if kind == "FSDP":
        read_fsdp(found, draft, asked)
    elif kind == "DEEPSPEED":
        _deepspeed(found, draft)
    elif kind in ("", "NO", "MULTI_GPU"):
        _plain(kind, draft, asked)
    else:
        raise draft.fault(
            f"distributed_type = {kind}: not modelled; of accelerate's are FSDP, DEEPSPEED, MULTI_GPU "
            "and NO."
        )
    _unused_section(found, kind, draft)
    _precision(found, draft, kind)
    backend = str(found.get("dynamo_config.dynamo_backend") or "").upper()
    if backend:
        draft.set("model.compile", backend not in ("NO", "EAGER"), f"dynamo_backend = {backend}")


def read_fsdp(found: Found, draft: Draft, asked: Asked) -> None:
    """Set the strategy and the groups of FSDP1 or FSDP2."""
    version = found.get(f"{FSDP}version")
    number = 1 if version is None else version
    word = f"{FSDP}version = {number}" if version is not None else "no fsdp_version: FSDP1"
    draft.set("sharding.strategy", f"fsdp{number}", word)
    _wrapping(found, draft, asked)
    if number == 1:
        _first(found, draft, asked)
    else:
        _second(found, draft)
    _mesh(found, draft, asked, number)


def _first(found: Found, draft: Draft, asked: Asked) -> None:
    """Set FSDP1's sharding strategy, which version 1 also takes as reshard_after_forward."""
    if f"{FSDP}activation_checkpointing_offload" in found.every and found.get(
        f"{FSDP}activation_checkpointing_offload"
    ):
        raise draft.fault("fsdp_activation_checkpointing_offload = true needs fsdp_version = 2.")
    key = f"{FSDP}sharding_strategy"
    if (
        found.get(key) is None
        and str(found.get(f"{FSDP}reshard_after_forward")).lower() in STRATEGY_WORDS
    ):
        key = f"{FSDP}reshard_after_forward"
    written = found.get(key)
    name = STRATEGY_WORDS.get(str(written).lower(), "") if written is not None else "full_shard"
    if not name:
        raise draft.fault(
            f"{key} = {written!r}: expected 1 to 5 or one of {', '.join(each.upper() for each in STRATEGIES)}."
        )
    said = (
        f"{key} = {written} is {name.upper()}"
        if written is not None
        else "no fsdp_sharding_strategy: FULL_SHARD"
    )
    if str(written).isdigit():
        draft.remark(said)
    draft.set(
        "sharding.reshard_after_forward", name in ("full_shard", "no_shard", "hybrid_shard"), said
    )
    if name == "no_shard":
        draft.set("sharding.shard_size", 1, f"{said}: every rank holds all, as under DDP")
        draft.remark("NO_SHARD: every rank holds all, as under DDP; nothing is sharded")
    elif name.startswith("hybrid"):
        _hybrid(draft, asked, said)
    if f"{FSDP}backward_prefetch" not in found.every:
        draft.set("sharding.backward_prefetch", "none", "no fsdp_backward_prefetch: NO_PREFETCH")


def _hybrid(draft: Draft, asked: Asked, said: str) -> None:
    """HYBRID_SHARD shards inside a machine (`_init_intra_and_inter_node_groups`, torch 2.13)."""
    gpus = known_gpus(draft, asked)
    per_node = known(draft, asked, "cluster.gpus_per_node")
    if per_node is None or gpus is None:
        draft.open["sharding.shard_size"] = (
            f"{said} shards inside a node: give --gpus and --gpus-per-node, or --shard-size"
        )
        return
    size = min(gpus, per_node)
    draft.set("sharding.shard_size", size, f"{said}: the {size} ranks of a node")


def _second(found: Found, draft: Draft) -> None:
    """Set whether FSDP2 reshards; an FSDP1 strategy in its place is translated where it can be."""
    written, old = found.get(f"{FSDP}reshard_after_forward"), found.get(f"{FSDP}sharding_strategy")
    if old is not None and written is None:
        name = STRATEGY_WORDS.get(str(old).lower(), "")
        if name not in ("full_shard", "shard_grad_op"):
            raise draft.fault(
                f"{FSDP}sharding_strategy = {old!r} with fsdp_version 2: accelerate takes "
                "fsdp_reshard_after_forward = true or false there."
            )
        draft.remark(
            f"{FSDP}sharding_strategy is FSDP1's: accelerate 1.15 does not read it under FSDP2"
        )
    word = "true" if written is None else str(written).lower()
    if word not in ("true", "false"):
        raise draft.fault(
            f"{FSDP}reshard_after_forward = {written!r} with fsdp_version 2: expected true or false."
        )
    draft.set(
        "sharding.reshard_after_forward", word == "true", f"{FSDP}reshard_after_forward = {word}"
    )


def _mesh(found: Found, draft: Draft, asked: Asked, number: int) -> None:
    """Set the groups of parallelism_config, which lays FSDP2's mesh out."""
    copies, size = found.get(f"{MESH}dp_replicate_size"), found.get(f"{MESH}dp_shard_size")
    gpus = known_gpus(draft, asked)
    if copies and size and gpus and copies * size != gpus:
        raise draft.fault(
            f"dp_replicate_size {copies} x dp_shard_size {size} = {copies * size} is not the "
            f"{gpus} GPUs of num_processes: mend one of them."
        )
    if copies and gpus and gpus % copies:
        raise draft.fault(f"dp_replicate_size = {copies} does not divide the {gpus} GPUs.")
    if copies and copies > 1:
        if number == 1:
            raise draft.fault("dp_replicate_size above 1 needs fsdp_version = 2.")
        draft.set("sharding.strategy", "hsdp", f"{MESH}dp_replicate_size = {copies}")
        draft.set("sharding.replicate_size", copies, f"{MESH}dp_replicate_size = {copies}")
    if size and size > 1:
        draft.set("sharding.shard_size", size, f"{MESH}dp_shard_size = {size}")


def _wrapping(found: Found, draft: Draft, asked: Asked) -> None:
    policy = str(found.get(f"{FSDP}auto_wrap_policy") or "").upper()
    if policy in ("SIZE_BASED_WRAP", "NO_WRAP"):
        raise draft.fault(
            f"{FSDP}auto_wrap_policy = {policy}: units other than the model's layers are not modelled. "
            f"Set TRANSFORMER_BASED_WRAP, or pass --ignore {FSDP}auto_wrap_policy to estimate so."
        )
    if policy not in ("", "TRANSFORMER_BASED_WRAP"):
        raise draft.fault(
            f"{FSDP}auto_wrap_policy = {policy}: expected TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or "
            "NO_WRAP."
        )
    if not policy:
        draft.remark(
            "no fsdp_auto_wrap_policy: accelerate itself then wraps nothing but the whole model; "
            "estimated with a unit per layer, as TRANSFORMER_BASED_WRAP has it"
        )
    check_classes(found.get(f"{FSDP}transformer_layer_cls_to_wrap"), draft, asked)


def _processes(found: Found, draft: Draft, asked: Asked) -> None:
    """Set GPUs and GPUs per node; a flag's number of GPUs leaves the machines open."""
    gpus, machines = found.get("num_processes"), found.get("num_machines") or 1
    if gpus is None:
        return
    if asked.flags.get(GPUS) not in (None, gpus):
        draft.remark(f"num_processes = {gpus} no longer holds: --gpus {asked.flags[GPUS]} wins")
        return
    draft.set(GPUS, gpus, f"num_processes = {gpus}")
    if gpus % machines:
        raise draft.fault(
            f"num_processes = {gpus} is not a multiple of num_machines = {machines}: {gpus} / "
            f"{machines} = {gpus / machines:.3g} per machine."
        )
    draft.set(
        "cluster.gpus_per_node", gpus // machines, f"num_processes {gpus} / num_machines {machines}"
    )


def _plain(kind: str, draft: Draft, asked: Asked) -> None:
    gpus = known_gpus(draft, asked)
    if kind == "NO" or gpus == 1:
        draft.set("sharding.strategy", "none", "distributed_type = NO")
        if known_gpus(draft, asked) is None:
            draft.set(GPUS, 1, "distributed_type = NO")
    elif kind:
        draft.set("sharding.strategy", "ddp", f"distributed_type = {kind}")


def _deepspeed(found: Found, draft: Draft) -> None:
    """Set the inline fields; those of a deepspeed_config_file are read with it."""
    whole = found.get(f"{DS}deepspeed_config_file") is not None
    number = found.get(f"{DS}zero_stage")
    if number is None and not whole:
        number = USUAL_STAGE
        draft.remark(f"no zero_stage: accelerate's default is {USUAL_STAGE}")
    if number is not None:
        draft.set("sharding.strategy", STAGES[number], f"{DS}zero_stage = {number}")
    limits = {
        "optimizer": ("sharding.offload_optimizer", 1),
        "param": ("sharding.offload_parameters", 3),
    }
    for part, (key, least) in limits.items():
        device = found.get(f"{DS}offload_{part}_device")
        if device is None:
            continue
        if device != "none" and number is not None and number < least:
            draft.remark(
                f"offload_{part}_device = {device} has no effect under zero_stage = {number}"
            )
        else:
            draft.set(key, device, f"{DS}offload_{part}_device = {device}")
    for name in ("gradient_accumulation_steps", "gradient_clipping"):
        if found.get(f"{DS}{name}") is not None:
            draft.set(f"training.{name}", found.get(f"{DS}{name}"), f"{DS}{name}")


def _precision(found: Found, draft: Draft, kind: str) -> None:
    """Set the compute dtype and, under FSDP, the same to reduce in (`set_mixed_precision`)."""
    written = found.get("mixed_precision")
    if written is None and found.get("fp16"):
        written = "fp16"
    if written is None:
        written = found.get(f"{FSDP}mixed_precision_policy") if kind == "FSDP" else None
    if written is None:
        draft.open["training.compute_dtype"] = (
            "no mixed_precision: the script's own arguments decide; say it with --compute-dtype or "
            "--precision"
        )
        return
    word = str(written).lower()
    if word == "fp8":
        raise draft.fault(
            "mixed_precision = 'fp8': recipes of accelerate's fp8 backends are not modelled. Set bf16, "
            "or pass --ignore mixed_precision and say --precision."
        )
    if word not in DTYPES:
        raise draft.fault(f"mixed_precision = {written!r}: expected no, fp16, bf16 or fp8.")
    if written is False:
        draft.remark("mixed_precision: no without quotes is false in YAML 1.1; read as 'no'")
    draft.set("training.compute_dtype", DTYPES[word], f"mixed_precision = {word}")
    if kind == "FSDP":
        draft.set(
            "training.reduce_dtype", DTYPES[word], f"mixed_precision = {word}: FSDP reduces in it"
        )


def _unused_section(found: Found, kind: str, draft: Draft) -> None:
    """Keys of the other framework's section do nothing; say so."""
    other: dict[str, Any] = {"FSDP": (DS,), "DEEPSPEED": (FSDP,)}
    sections = other.get(kind, (DS, FSDP))
    extra = sorted(key for key in found.every if key.startswith(sections))
    for key in extra:
        draft.remark(f"{key} does nothing under distributed_type = {kind or 'none'}")
