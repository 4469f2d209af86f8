"""torchtitan's job configuration: what its keys mean together.

Source: torchtitan 0.2, torchtitan/models/llama3/infra/parallelize.py, model/model.py and
torchtitan/train.py; defaults of torchtitan/config/job_config.py.
"""

from typing import Final

from zeroplan.foreign.batch import GPUS, Batch, known_gpus, share_batch
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.sorting import Found
from zeroplan.foreign.torchtitan_table import FLOAT8, PARALLEL
from zeroplan.spec.presets import is_preset
from zeroplan.units import MIB

__all__ = ["BUCKET_BYTES", "DEFAULTS", "FLAVORS", "read_torchtitan"]

BUCKET_BYTES: Final = 100 * MIB
"""What it gives DDP (`apply_ddp`). [B]"""

DEFAULTS: Final[dict[str, object]] = {
    "training.gradient_clipping": 1.0,
    "training.parameter_dtype": "fp32",
    "training.compute_dtype": "bf16",
    "training.reduce_dtype": "fp32",
    "training.optimizer": "adamw",
    "training.optimizer_implementation": "fused",
}
"""What a job has where its file says nothing, by spec key."""

LOCAL_BATCH: Final = 8
SEQUENCE: Final = 2048
BATCH: Final = ("training.global_batch_size", "training.local_batch_size", "accumulation")

FLAVORS: Final = {
    ("llama3", "8b"): "llama-3.1-8b",
    ("llama3", "70b"): "llama-3.1-70b",
    ("llama3", "405b"): "llama-3.1-405b",
    ("llama2", "7b"): "llama-2-7b",
    ("llama2", "13b"): "llama-2-13b",
    ("llama2", "70b"): "llama-2-70b",
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("qwen3", "0.6b"): "qwen3-0.6b",
    ("qwen3", "1.7b"): "qwen3-1.7b",
    ("qwen3", "4b"): "qwen3-4b",
    ("qwen3", "8b"): "qwen3-8b",
    ("qwen3", "14b"): "qwen3-14b",
    ("qwen3", "32b"): "qwen3-32b",
}
"""Presets of torchtitan's models and their flavors."""


def read_torchtitan(found: Found, draft: Draft, asked: Asked) -> None:
    """Set what the joined keys of a job amount to, and torchtitan's own defaults."""
    _model(found, draft)
    _length(found, draft)
    _groups(found, draft, asked)
    _resharding(found, draft)
    _checkpointing(found, draft)
    _compiling(found, draft)
    _float8(found, draft)
    if found.get("optimizer.fused") is not None:
        word = "fused" if found.get("optimizer.fused") else "foreach"
        draft.set("training.optimizer_implementation", word, "optimizer.fused")
    taken = [key for key in DEFAULTS if key not in draft.values]
    for key in taken:
        draft.set(key, DEFAULTS[key], "torchtitan's default")
    micro = found.get(BATCH[1])
    total = found.get(BATCH[0])
    batch = Batch(
        total=total if total and total > 0 else None,
        micro=micro or LOCAL_BATCH,
        steps=None,
        names=BATCH,
    )
    share_batch(batch, draft, asked)
    if "training.gradient_accumulation_steps" not in draft.values:
        draft.set("training.gradient_accumulation_steps", 1, "no global_batch_size")
    taken += [
        name
        for name in (BATCH[1], "training.seq_len", "activation_checkpoint.mode")
        if not found.says(name)
    ]
    if taken:
        draft.remark(f"torchtitan's defaults are taken for {', '.join(taken)}")


def _model(found: Found, draft: Draft) -> None:
    name, flavor = (str(found.get(f"model.{part}") or "").lower() for part in ("name", "flavor"))
    folder = str(found.get("model.hf_assets_path") or "").rstrip("/").rpartition("/")[2].lower()
    source = FLAVORS.get((name, flavor)) or (folder if is_preset(folder) else None)
    if source is not None:
        draft.set("model.source", source, f"model {name} {flavor}".rstrip())
    elif name:
        draft.open["model.source"] = f"model {name} {flavor} is no preset: give --model"
    if name.startswith("llama"):
        draft.set("model.rope", "complex", "torchtitan's Llama rotates complex numbers")
        draft.set(
            "model.attention", "flash-expanded-kv", "torchtitan's Llama repeats keys and values"
        )
    if found.get("model.norm_type") is not None:
        word = str(found.get("model.norm_type")).lower()
        if word not in ("rmsnorm", "fused_rmsnorm"):
            raise draft.fault(f"model.norm_type = {word}: expected rmsnorm or fused_rmsnorm.")
        draft.set(
            "model.norm", "eager" if word == "rmsnorm" else "fused", f"model.norm_type = {word}"
        )


def _length(found: Found, draft: Draft) -> None:
    written = found.get("training.seq_len")
    said = f"training.seq_len = {written}" if written else "torchtitan's default"
    draft.set("training.sequence_length", written or SEQUENCE, said)


def _groups(found: Found, draft: Draft, asked: Asked) -> None:
    """Set strategy and groups: copies times ranks of a copy are the GPUs (`ParallelDims`)."""
    copies = found.get(f"{PARALLEL}data_parallel_replicate_degree") or 1
    size = found.get(f"{PARALLEL}data_parallel_shard_degree")
    gpus = known_gpus(draft, asked)
    if size == 0:
        raise draft.fault("parallelism.data_parallel_shard_degree = 0: expected -1, or 1 and more.")
    if size in (None, -1):
        if gpus is None:
            gpus = draft.default(
                GPUS, "data_parallel_shard_degree = -1 is what the GPUs leave over"
            )
        if gpus % copies:
            raise draft.fault(
                f"data_parallel_replicate_degree = {copies} does not divide the {gpus} GPUs: {gpus} / "
                f"{copies} = {gpus / copies:.3g}."
            )
        size = gpus // copies
    elif gpus is not None and copies * size != gpus:
        raise draft.fault(
            f"data_parallel_replicate_degree {copies} x data_parallel_shard_degree {size} = "
            f"{copies * size} is not the {gpus} GPUs: mend one of them."
        )
    said = f"replicate degree {copies}, shard degree {size}"
    draft.set(GPUS, copies * size, said)
    draft.set("sharding.strategy", _strategy(copies, size), said)
    if copies > 1 and size > 1:
        draft.set("sharding.replicate_size", copies, said)
    if size > 1:
        draft.set("sharding.shard_size", size, said)
    elif copies > 1:
        draft.set("sharding.bucket_bytes", BUCKET_BYTES, "torchtitan's DDP has buckets of 100 MiB")


def _strategy(copies: int, size: int) -> str:
    if size > 1:
        return "hsdp" if copies > 1 else "fsdp2"
    return "ddp" if copies > 1 else "none"


def _resharding(found: Found, draft: Draft) -> None:
    """Set resharding: norm and head keep theirs unless the policy is always (`apply_fsdp`)."""
    word = str(found.get(f"{PARALLEL}fsdp_reshard_after_forward") or "default").lower()
    if word not in ("default", "always", "never"):
        raise draft.fault(
            f"{PARALLEL}fsdp_reshard_after_forward = {word!r}: expected default, always or never."
        )
    if draft.values["sharding.strategy"] not in ("fsdp2", "hsdp"):
        return
    said = f"fsdp_reshard_after_forward = {word}"
    draft.set("sharding.root_wrap", "separate", "torchtitan wraps embedding and [norm, head] apart")
    draft.set("sharding.reshard_after_forward", word != "never", said)
    if word == "always":
        draft.set("sharding.root_reshard_after_forward", value=True, origin=said)


def _checkpointing(found: Found, draft: Draft) -> None:
    mode = str(found.get("activation_checkpoint.mode") or "selective").lower()
    option = str(found.get("activation_checkpoint.selective_ac_option") or "2").lower()
    said = f"activation_checkpoint.mode = {mode}"
    if mode == "selective":
        word = {"op": "selective", "1": "full"}.get(option, f"every-{option}")
        said = f"{said}, selective_ac_option = {option}"
    elif mode in ("full", "none"):
        word = mode
    else:
        raise draft.fault(
            f"activation_checkpoint.mode = {mode!r}: only none, full and selective are modelled."
        )
    draft.set("training.activation_checkpointing", word, said)


def _compiling(found: Found, draft: Draft) -> None:
    on = found.get("compile.enable") or found.get("training.compile")
    if not on:
        draft.set("model.compile", value=False, origin="compile.enable = false")
        return
    parts = _names(found.get("compile.components"), ("model", "loss"))
    draft.set("model.compile", "model" in parts, f"compile.components = {', '.join(parts)}")
    if "loss" in parts:
        draft.set("model.loss", "compiled", "compile.components has loss")


def _float8(found: Found, draft: Draft) -> None:
    """Set fp8 where a converter, or 0.1's switch, asks for it."""
    converters = _names(found.get("model.converters"), ())
    other = [name for name in converters if name != "float8"]
    if other:
        raise draft.fault(
            f"model.converters has {other[0]}: not modelled. Leave it out, or pass --ignore "
            "model.converters."
        )
    if not converters and not found.get(f"{FLOAT8}enable_float8_linear"):
        return
    recipe = str(found.get(f"{FLOAT8}recipe_name") or "tensorwise").lower()
    if recipe not in ("tensorwise", "rowwise"):
        raise draft.fault(
            f"{FLOAT8}recipe_name = {recipe}: only tensorwise and rowwise are modelled. Leave it out, or "
            "pass --ignore model.converters."
        )
    skipped = _names(found.get(f"{FLOAT8}filter_fqns"), ())
    if list(skipped) != ["output"]:
        raise draft.fault(
            f"{FLOAT8}filter_fqns = {list(skipped)}: fp8 is modelled for the linear layers of blocks, "
            'all of them: write ["output"].'
        )
    draft.set("training.fp8", recipe, f"{FLOAT8}recipe_name = {recipe}")
    gathers = bool(found.get(f"{FLOAT8}enable_fsdp_float8_all_gather"))
    draft.set("sharding.fp8_all_gather", gathers, f"{FLOAT8}enable_fsdp_float8_all_gather")


def _names(written: object, usual: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(written, str):
        written = [part.strip() for part in written.split(",") if part.strip()]
    return tuple(str(part) for part in written) if isinstance(written, list) else usual
