"""transformers' TrainingArguments: what its keys mean together.

Source: `TrainingArguments` in transformers/training_args.py (5.24): `_process_fsdp_args`,
`_apply_legacy_fsdp_to_config`, and the defaults of its fields.
"""

from typing import Any, Final

from zeroplan.foreign.accelerate import read_fsdp
from zeroplan.foreign.accelerate_table import ACCELERATE, FSDP, MESH, STRATEGIES
from zeroplan.foreign.batch import known_gpus
from zeroplan.foreign.draft import Asked, Draft, Ignored
from zeroplan.foreign.sorting import Found, sort_out
from zeroplan.foreign.training_args_table import OPTIMIZERS, PLUGIN
from zeroplan.units import MIB

__all__ = ["read_training_args"]

USUAL_OPTIMIZER: Final = "adamw_torch_fused"
USUAL_NORM: Final = 1.0
USUAL_BATCH: Final = 8
COMPUTE: Final = "training.compute_dtype"
STEPS: Final = "training.gradient_accumulation_steps"
SYNC: Final = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"


def read_training_args(found: Found, draft: Draft, asked: Asked) -> None:
    """Set what the joined keys of TrainingArguments amount to, and the defaults of its fields."""
    if found.get("use_cpu"):
        draft.remark("use_cpu = true: the Trainer trains on the CPU; estimated as if on GPUs")
    _batch(found, draft)
    _precision(found, draft)
    _optimizer(found, draft)
    on = bool(found.get("gradient_checkpointing"))
    draft.set(
        "training.activation_checkpointing",
        "full" if on else "none",
        f"gradient_checkpointing = {str(on).lower()}",
    )
    if on:
        reentrant = bool(found.get("gradient_checkpointing_kwargs.use_reentrant"))
        draft.set(
            "training.checkpoint_reentrant",
            reentrant,
            "gradient_checkpointing_kwargs.use_reentrant",
        )
    if found.get("max_length"):
        draft.set("training.sequence_length", found.get("max_length"), "max_length")
    _strategy(found, draft, asked)
    taken = [
        name
        for name in ("per_device_train_batch_size", "max_grad_norm", "optim")
        if not found.says(name)
    ]
    if taken:
        draft.remark(f"TrainingArguments' defaults are taken for {', '.join(taken)}")


def _batch(found: Found, draft: Draft) -> None:
    micro = found.get("per_device_train_batch_size") or USUAL_BATCH
    draft.set("training.micro_batch_size", micro, f"per_device_train_batch_size = {micro}")
    steps = found.get("gradient_accumulation_steps") or 1
    draft.set(STEPS, steps, f"gradient_accumulation_steps = {steps}")
    if "training.gradient_clipping" not in draft.values:
        draft.set("training.gradient_clipping", USUAL_NORM, "max_grad_norm's default")


def _precision(found: Found, draft: Draft) -> None:
    on = [name for name in ("bf16", "fp16") if found.get(name)]
    if len(on) > 1:
        raise draft.fault("bf16 and fp16 are both true: the Trainer takes one of them.")
    word = on[0] if on else "tf32" if found.get("tf32") else "fp32"
    draft.set(COMPUTE, word, f"{word} = true" if word != "fp32" else "neither bf16 nor fp16")
    draft.remark(
        "the dtype in which the model is loaded stands in the script: fp32 is taken, say "
        "--parameter-dtype where it is another"
    )


def _optimizer(found: Found, draft: Draft) -> None:
    word = (
        "adafactor"
        if found.get("adafactor")
        else str(found.get("optim") or USUAL_OPTIMIZER).lower()
    )
    if word not in OPTIMIZERS:
        raise draft.fault(
            f"optim = {word}: not modelled; transformers' {', '.join(OPTIMIZERS)} are. Leave it out and "
            "say --optimizer, or pass --ignore optim."
        )
    name, implementation = OPTIMIZERS[word]
    draft.set("training.optimizer", name, f"optim = {word}")
    if implementation is not None:
        draft.set("training.optimizer_implementation", implementation, f"optim = {word}")


def _strategy(found: Found, draft: Draft, asked: Asked) -> None:
    """Set the strategy: DeepSpeed's own file says more, FSDP goes through accelerate's plugin."""
    if found.says("deepspeed") or not asked.formats.isdisjoint(("deepspeed", "accelerate")):
        return
    options = _options(found.get("fsdp"))
    if options is not None:
        _fsdp(options, found, draft, asked)
    elif known_gpus(draft, asked) == 1:
        draft.set("sharding.strategy", "none", "neither fsdp nor deepspeed, one GPU")
    else:
        draft.set("sharding.strategy", "ddp", "neither fsdp nor deepspeed: DistributedDataParallel")
        size = found.get("ddp_bucket_cap_mb")
        if size is not None:
            draft.set("sharding.bucket_bytes", size * MIB, f"ddp_bucket_cap_mb = {size}")
    if draft.values[STEPS] > 1:
        every = bool(found.get(SYNC))
        said = "the Trainer reduces in the last micro-step (no_sync)" if not every else SYNC
        draft.set("sharding.synchronize_gradients", "every" if every else "last", said)


def _options(written: Any) -> list[str] | None:
    """Return the words of `fsdp`; None where it is off."""
    if written in (None, False, "", []):
        return None
    if written is True:
        return []
    parts = written.replace(",", " ").split() if isinstance(written, str) else written
    return [str(part).lower() for part in parts]


def _fsdp(options: list[str], found: Found, draft: Draft, asked: Asked) -> None:
    """Hand FSDP's settings to the reader of accelerate's plugin, which is what the Trainer makes."""
    given: dict[str, Any] = {f"{FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    for name in PLUGIN:
        for prefix in ("", "fsdp_"):
            value = found.get(f"fsdp_config.{prefix}{name}")
            if value is not None:
                given[f"{FSDP}{'offload_params' if name == 'cpu_offload' else name}"] = value
    for size in ("dp_replicate_size", "dp_shard_size"):
        if found.get(f"parallelism_config.{size}") is not None:
            given[f"{MESH}{size}"] = found.get(f"parallelism_config.{size}")
    if found.get("fsdp_transformer_layer_cls_to_wrap") is not None:
        given[f"{FSDP}transformer_layer_cls_to_wrap"] = found.get(
            "fsdp_transformer_layer_cls_to_wrap"
        )
    _legacy(options, given, draft)
    plugin = sort_out(given, ACCELERATE, draft, Ignored())
    read_fsdp(plugin, draft, asked)
    word = draft.values[COMPUTE]
    draft.set(
        "training.reduce_dtype",
        "fp32" if word == "tf32" else word,
        "accelerate reduces in the compute dtype",
    )


def _legacy(options: list[str], given: dict[str, Any], draft: Draft) -> None:
    """Translate words such as full_shard and offload into settings, as transformers 5.24 does."""
    version = f"{FSDP}version"
    words = [word for word in options if word in STRATEGIES]
    if version not in given:
        hybrid = [word for word in words if word not in STRATEGIES[:2]]
        given[version] = 1 if hybrid else 2
        why = f"{hybrid[0]} is FSDP1's" if hybrid else "transformers 5.24 takes 2, 4 took 1"
        draft.remark(f"fsdp_config has no version: {given[version]}, for {why}")
    for word in words:
        if str(given[version]) == "1":
            given.setdefault(f"{FSDP}reshard_after_forward", word)
        else:
            given.setdefault(f"{FSDP}reshard_after_forward", word == STRATEGIES[0])
    if "offload" in options:
        given.setdefault(f"{FSDP}offload_params", True)
    unknown = [
        word for word in options if word not in (*STRATEGIES, "offload", "auto_wrap", "true")
    ]
    if unknown:
        raise draft.fault(
            f"fsdp has {unknown[0]!r}: expected {', '.join(STRATEGIES)}, offload or auto_wrap."
        )
