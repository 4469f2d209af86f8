"""A script that shards a model with FSDP2: its constants, read and written."""

from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.foreign.batch import GPUS
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.sorting import Found
from zeroplan.foreign.table import WORD, Table, joined, same, table
from zeroplan.spec.run import Run
from zeroplan.spec.words import Count

__all__ = ["FSDP2", "read_fsdp2", "write_fsdp2"]

_DTYPES: Final = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "none": "auto"}
_TORCH: Final = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}

FSDP2: Final[Table] = table(
    joined("REPLICATE", "sharding.replicate_size", Count, "copies; above 1 hsdp"),
    joined("SHARD", "sharding.shard_size", Count, "ranks of a copy"),
    same("STORED_DTYPE", "training.parameter_dtype", words=_DTYPES),
    same("PARAM_DTYPE", "training.compute_dtype", words=_DTYPES),
    same("REDUCE_DTYPE", "training.reduce_dtype", words=_DTYPES),
    joined("RESHARD_AFTER_FORWARD", "sharding.reshard_after_forward", bool | int, "of blocks"),
    joined("ROOT_RESHARD", "sharding.root_reshard_after_forward", WORD, "None is FSDP2's choice"),
    joined("ROOT_APART", "sharding.root_wrap", bool, "embedding and [norm, head] apart"),
    joined("OFFLOAD", "sharding.offload_parameters", bool, "all states to host memory"),
    same("PIN_MEMORY", "sharding.offload_pin_memory"),
    same("FORWARD_PREFETCH", "sharding.forward_prefetch_blocks"),
    same("BACKWARD_PREFETCH", "sharding.backward_prefetch_blocks"),
)

SCRIPT: Final = """\
import torch
from torch import distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

REPLICATE = {replicate}
SHARD = {shard}
STORED_DTYPE = {stored}
PARAM_DTYPE = {compute}
REDUCE_DTYPE = {reduce}
RESHARD_AFTER_FORWARD = {reshard}
ROOT_RESHARD = {root}
ROOT_APART = {apart}
OFFLOAD = {offload}
PIN_MEMORY = {pin}
FORWARD_PREFETCH = {forward}
BACKWARD_PREFETCH = {backward}


def shard(model, blocks, embedding=None, last=None, device="cuda"):
    sizes = (REPLICATE, SHARD) if REPLICATE > 1 else (SHARD,)
    mesh = dist.init_device_mesh(device, sizes, mesh_dim_names=("replicate", "shard")[-len(sizes) :])
    how = {{
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE),
        "offload_policy": CPUOffloadPolicy(pin_memory=PIN_MEMORY) if OFFLOAD else OffloadPolicy(),
    }}
    model.to(STORED_DTYPE)
    blocks = list(blocks)
    for block in blocks:
        fully_shard(block, reshard_after_forward=RESHARD_AFTER_FORWARD, **how)
    if ROOT_APART:
        fully_shard(embedding, reshard_after_forward=RESHARD_AFTER_FORWARD, **how)
        fully_shard(last, reshard_after_forward=bool(ROOT_RESHARD), **how)
    fully_shard(model, reshard_after_forward=ROOT_RESHARD, **how)
    for index, block in enumerate(blocks):
        if FORWARD_PREFETCH:
            block.set_modules_to_forward_prefetch(blocks[index + 1 :][:FORWARD_PREFETCH])
        if BACKWARD_PREFETCH:
            block.set_modules_to_backward_prefetch(blocks[:index][::-1][:BACKWARD_PREFETCH])
    return model
"""


def read_fsdp2(found: Found, draft: Draft, asked: Asked) -> None:
    """Set what the script's constants amount to."""
    del asked
    missing = [
        name for name in ("REPLICATE", "SHARD", "RESHARD_AFTER_FORWARD") if found.get(name) is None
    ]
    if missing:
        raise draft.fault(
            f"no {missing[0]} = ... at the top: only scripts in the form of zeroplan export are read."
        )
    copies, size = found.get("REPLICATE"), found.get("SHARD")
    said = f"REPLICATE = {copies}, SHARD = {size}"
    draft.set(GPUS, copies * size, said)
    draft.set("sharding.strategy", "hsdp" if copies > 1 else "fsdp2", said)
    draft.set("sharding.shard_size", size, said)
    if copies > 1:
        draft.set("sharding.replicate_size", copies, said)
    reshard = found.get("RESHARD_AFTER_FORWARD")
    draft.set("sharding.reshard_after_forward", reshard, f"RESHARD_AFTER_FORWARD = {reshard}")
    root = found.get("ROOT_RESHARD")
    if isinstance(root, bool):
        draft.set("sharding.root_reshard_after_forward", root, f"ROOT_RESHARD = {root}")
    apart = found.get("ROOT_APART")
    if apart is not None:
        draft.set(
            "sharding.root_wrap", "separate" if apart else "together", f"ROOT_APART = {apart}"
        )
    offload = found.get("OFFLOAD")
    if offload is not None:
        draft.set(
            "sharding.offload_parameters", "cpu" if offload else "none", f"OFFLOAD = {offload}"
        )


def write_fsdp2(run: Run, shard_size: int) -> str:
    """Return the script of a run, whose shard group has so many ranks [count]."""
    sharding, training = run.sharding, run.training
    if sharding.strategy not in ("fsdp2", "hsdp"):
        raise SpecError(
            f"--format fsdp2: no FSDP2 in strategy {sharding.strategy}; use fsdp2 or hsdp."
        )
    compute = "fp32" if training.compute_dtype == "tf32" else training.compute_dtype
    values: dict[str, Any] = {
        "replicate": run.cluster.gpus // shard_size,
        "shard": shard_size,
        "stored": _TORCH[training.parameter_dtype],
        "compute": _TORCH[compute],
        "reduce": _TORCH[training.reduce_dtype or "fp32"],
        "reshard": sharding.reshard_after_forward,
        "root": sharding.root_reshard_after_forward,
        "apart": sharding.root_wrap == "separate",
        "offload": sharding.offload_parameters != "none",
        "pin": sharding.offload_pin_memory,
        "forward": sharding.forward_prefetch_blocks,
        "backward": sharding.backward_prefetch_blocks,
    }
    return SCRIPT.format(**values)
