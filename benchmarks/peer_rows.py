"""A question as a flat row of numbers and words, which other tools can be asked without zeroplan."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from zeroplan.estimation.resolve import Question, ranks_per_node, resolve, strategy_groups
from zeroplan.sharding.dtypes import dtypes
from zeroplan.spec.architecture import Attention, Mlp
from zeroplan.spec.toml import load_spec
from zeroplan.workload.count import count_model

MODEL = "llama-3.1-8b"
GPUS = (1, 8, 64)
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "fsdp2")
MICRO_BATCHES = (1, 4)
CHECKPOINTING = ("none", "full")


def row_of(question: Question) -> dict[str, Any]:
    """Return what a decoder's run is; `shard_size` in GPUs, widths in elements, rates in bytes."""
    run, (sharding,) = question.run, question.strategies
    length = run.training.sequence_length or 0  # resolved questions have one
    (stack,) = question.architecture.stacks
    parts = [sublayer.component for sublayer in stack.blocks[0].sublayers]
    attention = next(part for part in parts if isinstance(part, Attention))
    mlp = next(part for part in parts if isinstance(part, Mlp))
    held, groups = dtypes(sharding, run.training), strategy_groups(sharding, run)
    token = next(table for table in stack.embeddings if table.kind == "token")
    head = question.architecture.head
    return {
        "gpus": run.cluster.gpus,
        "gpus_per_node": ranks_per_node(run),
        "node_bytes_per_second": question.wires.node_bytes_per_second,
        "gpu": question.gpu.id,
        "strategy": sharding.strategy,
        "stage": stage(question),
        "shard_size": groups.shard.ranks,
        "layers": len(stack.blocks),
        "hidden": stack.hidden,
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "ffn": mlp.width,
        "gated": mlp.gated,
        "vocabulary": token.rows,
        "tied": head is not None and head.tied,
        "parameters": count_model(question.architecture, length).total_parameters,
        "sequence_length": length,
        "micro_batch": run.training.micro_batch_size,
        "accumulation": run.training.gradient_accumulation_steps,
        "checkpointing": run.training.activation_checkpointing,
        "attention": run.model.attention,
        "compute_dtype": run.training.compute_dtype,
        "state_bytes": held.state,
        "master_bytes": held.master,
    }


def stage(question: Question) -> int:
    """Return the stage of ZeRO; FSDP that keeps parameters until backward is the second."""
    (sharding,) = question.strategies
    if sharding.divides_parameters and question.run.sharding.reshard_after_forward is not False:
        return 3
    return 2 if sharding.divides_gradients else int(sharding.divides_optimizer)


def plans() -> Iterator[dict[str, Any]]:
    """Yield the plans of a small search, with zeroplan's own keys beside."""
    axes = product(GPUS, STRATEGIES, MICRO_BATCHES, CHECKPOINTING)
    for gpus, strategy, micro_batch, kept in axes:
        keys = {
            "model": MODEL,
            "gpu": "a100-sxm4-80gb",
            "gpus": gpus,
            "link": "ib-hdr200",
            "strategy": strategy,
            "micro_batch_size": micro_batch,
            "activation_checkpointing": kept,
        }
        yield row_of(resolve(load_spec(**keys))) | {"keys": keys}
