"""A run as the keys of a DeepSpeed configuration."""

from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.foreign.deepspeed import STAGES
from zeroplan.foreign.deepspeed_table import DEEPSPEED, OPTIMIZER, PARAM, ZERO
from zeroplan.spec.applies import applies
from zeroplan.spec.reading import flatten
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_dict

__all__ = ["to_deepspeed"]

OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "adamw": {"optimizer.type": "AdamW"},
    "adam": {"optimizer.type": "Adam", "optimizer.params.adam_w_mode": False},
    "lion": {"optimizer.type": "Lion"},
    "muon": {"optimizer.type": "Muon"},
    "sgd": {"optimizer.type": "SGD"},
    "sgd-momentum": {"optimizer.type": "SGD", "optimizer.params.momentum": 0.9},
}
"""The others are the script's own, and no block names them."""

SKIPPED: Final = (
    "sharding.deepspeed.version",
    "sharding.deepspeed.mics_hierarchical_params_gather",
)


def to_deepspeed(run: Run) -> dict[str, Any]:
    """Return values by dotted key."""
    training, sharding = run.training, run.sharding
    if sharding.strategy not in STAGES:
        raise SpecError(
            f"--format deepspeed: DeepSpeed has no strategy {sharding.strategy}; use {', '.join(STAGES)}."
        )
    micro, steps = training.micro_batch_size, training.gradient_accumulation_steps
    values: dict[str, Any] = {
        "train_batch_size": micro * steps * run.cluster.gpus,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "gradient_clipping": training.gradient_clipping,
        "bf16.enabled": training.compute_dtype == "bf16",
        "fp16.enabled": training.compute_dtype == "fp16",
        **OPTIMIZERS.get(training.optimizer, {}),
    }
    if training.optimizer_implementation == "foreach" and training.optimizer in ("adam", "adamw"):
        values["optimizer.params.torch_adam"] = True
    values[f"{ZERO}stage"] = STAGES.index(sharding.strategy)
    return values | _settings(run) | _offload(run)


def _settings(run: Run) -> dict[str, Any]:
    """Return every key that is one of the spec's, where the stage reads it."""
    flat = flatten(to_dict(run))
    found: dict[str, Any] = {}
    for entry in DEEPSPEED.values():
        spec = entry.becomes
        if entry.use not in ("read", "joined") or not spec.startswith("sharding.deepspeed."):
            continue
        value = flat[spec]
        if value == "auto" or spec in SKIPPED or not applies(spec, (run.sharding.strategy,)):  # type: ignore[arg-type]
            continue
        if ".offload_" in entry.key and not _offloads(run, entry.key):
            continue
        found[entry.key] = value
    if run.sharding.deepspeed.mics_shard_size is not None:
        gather = run.sharding.deepspeed.mics_hierarchical_params_gather
        found[f"{ZERO}mics_hierarchical_params_gather"] = gather
    return found


def _offloads(run: Run, key: str) -> bool:
    device = (
        run.sharding.offload_optimizer
        if key.startswith(OPTIMIZER)
        else run.sharding.offload_parameters
    )
    return device != "none"


def _offload(run: Run) -> dict[str, Any]:
    sharding = run.sharding
    found: dict[str, Any] = {}
    for block, device in (
        (OPTIMIZER, sharding.offload_optimizer),
        (PARAM, sharding.offload_parameters),
    ):
        if device == "none" or (block == PARAM and sharding.strategy != STAGES[-1]):
            continue
        found[f"{block}device"] = device
        found[f"{block}pin_memory"] = sharding.offload_pin_memory
        if device == "nvme":
            found[f"{block}nvme_path"] = "/local_nvme"
    return found
