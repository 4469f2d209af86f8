"""What of a model a strategy trains, and in which dtypes it has the frozen rest."""

from zeroplan.errors import SpecError
from zeroplan.records import replace
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import Run
from zeroplan.units import DTYPE_BYTES
from zeroplan.workload.tuning import Tuning

__all__ = ["shards_quantized", "tuned_dtypes", "tuning"]

STORAGE_BYTES = {**DTYPE_BYTES, "uint8": 1}


def tuned_dtypes(held: Dtypes, row: Sharding, run: Run) -> Dtypes:
    """Add the dtype of what is frozen.

    DeepSpeed casts the whole module to the compute dtype. Elsewhere a base under adapters is loaded
    in the compute dtype unless the run says otherwise, and torch.autocast then finds nothing to
    cast.
    """
    if run.tuning.trains_all:
        return held
    choice = run.tuning
    auto = held.compute if choice.lora_rank else held.parameter
    frozen = DTYPE_BYTES[choice.frozen_dtype] if choice.frozen_dtype else auto
    if row.framework == "fsdp1" and run.sharding.use_orig_params:
        frozen = _flattened(held, run)
    if row.framework == "deepspeed":
        frozen = held.compute
    return replace(held, frozen=frozen, autocast=held.autocast and held.compute < frozen)


def _flattened(held: Dtypes, run: Run) -> int:
    """Return the dtype of frozen parameters that FSDP1 flattens together with trained ones. [B]"""
    asked, trained = run.tuning.frozen_dtype, run.training.parameter_dtype
    if asked not in (None, trained):
        raise SpecError(
            f"tuning.frozen_dtype = {asked!r}: fsdp1 flattens frozen parameters together with "
            f"trained ones of {trained}; make the two alike, or set use_orig_params = false, with "
            "which peft wraps adapters by themselves."
        )
    return held.parameter


def tuning(held: Dtypes, row: Sharding, run: Run) -> Tuning | None:
    """Return how a strategy trains a part of a model; None where everything is trained.

    FSDP and DeepSpeed run adapters in the compute dtype. DDP has them as they are stored, and
    torch.autocast casts them.
    """
    if run.tuning.trains_all:
        return None
    choice = run.tuning
    gathers = row.framework in ("fsdp1", "fsdp2", "deepspeed")
    used = held.compute if gathers else held.parameter
    parts = choice.trainable or "none"
    return Tuning(
        rank=choice.lora_rank,
        targets=tuple(choice.lora_targets.split(",")),
        dropout=choice.lora_dropout > 0,
        adapter_itemsize=used,
        autocast=choice.lora_autocast and held.compute < used,
        trained=tuple(parts.split(",")),
        gradient_itemsize=used,
        flattens=row.framework == "fsdp1" and run.sharding.use_orig_params,
        wraps_embedding=run.sharding.root_wrap == "separate",
        input_requires_grad=run.training.checkpoint_reentrant,
        quantization=choice.base_quantization,
        double=choice.double_quantization,
        storage_itemsize=_storage_itemsize(row, run),
    )


def shards_quantized(row: Sharding, run: Run) -> bool:
    """Whether a strategy can hold the quantised weights that are asked for."""
    return not _unsharded(row, run)


def _unsharded(row: Sharding, run: Run) -> str:
    """Say why a strategy does not shard the quantised weights that are asked for; empty if it does.

    FSDP1 flattens floats only, and together only those of one dtype; ZeRO-3 gathers in one dtype,
    too. FSDP2 gathers whatever comes, as bytes where a group has several dtypes.

    Source: `FlatParamHandle._validate_tensors_to_flatten` in torch/distributed/fsdp/_flat_param.py
    (2.13); `bnb_4bit_quant_storage` in the documentation of peft, "FSDP" and "DeepSpeed".
    """
    choice, compute = run.tuning, run.training.compute_dtype
    if choice.base_quantization == "none" or not row.divides_parameters:
        return ""
    if choice.base_quantization == "int8":
        return (
            f"tuning.base_quantization = 'int8': {row.strategy} shards no integer weights; use nf4, "
            "or a strategy that keeps parameters whole (ddp, zero2)."
        )
    if row.framework != "fsdp2" and choice.quantization_storage not in (None, compute):
        return (
            f"tuning.quantization_storage = {choice.quantization_storage!r}: {row.strategy} shards "
            f"4-bit weights only where they are stored as the compute dtype; use {compute!r}."
        )
    return ""


def _storage_itemsize(row: Sharding, run: Run) -> int:
    """Return the bytes of an element that holds packed weights."""
    if obstacle := _unsharded(row, run):
        raise SpecError(obstacle)
    choice = run.tuning
    sharded = row.divides_parameters and choice.base_quantization != "none"
    auto = run.training.compute_dtype if sharded else "uint8"
    return STORAGE_BYTES[choice.quantization_storage or auto]
