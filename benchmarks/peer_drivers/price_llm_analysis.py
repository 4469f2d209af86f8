"""llm-analysis: `LLMAnalysis.training`; a second argument sets the efficiency, 1 by default.

Its MLP has two matrices; a gated one is told as half as wide again, so that the parameters agree.
"""

import sys
from dataclasses import replace
from functools import cache

from driver import HALF, Answer, Row, known, serve, unsharded_across
from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import (
    DtypeConfig,
    GPUConfig,
    ModelConfig,
    ParallelismConfig,
    get_gpu_config_by_name,
)
from llm_analysis.logger import logger

GPUS = {
    "a100-sxm4-40gb": "a100-sxm-40gb",
    "a100-sxm4-80gb": "a100-sxm-80gb",
    "h100-sxm5-80gb": "h100-sxm-80gb",
    "h100-sxm-96gb-hbm2e": "h100-sxm-80gb",
    "v100-sxm2-16gb": "v100-sxm-16gb",
    "v100-sxm2-32gb": "v100-sxm-32gb",
}
CHECKPOINTING = {"full": ActivationRecomputation.FULL, "none": ActivationRecomputation.NONE}
PRECISIONS = {"fp16": DtypeConfig(), "bf16": DtypeConfig()}
EFFICIENCY = float(sys.argv[2]) if sys.argv[2:] else None


@cache
def roomy(name: str) -> GPUConfig:
    """A GPU of which no batch is too large: it answers only what it believes to fit."""
    return replace(get_gpu_config_by_name(name), mem_per_GPU_in_GB=1e6)


def price(row: Row) -> Answer:
    unsharded_across(row)
    kept = known(CHECKPOINTING, row, "checkpointing")
    width = row["ffn"] * 3 // 2 if row["gated"] else row["ffn"]
    model = ModelConfig(
        name="row",
        num_layers=row["layers"],
        n_head=row["heads"],
        hidden_dim=row["hidden"],
        vocab_size=row["vocabulary"],
        max_seq_len=row["sequence_length"],
        num_key_value_heads=row["kv_heads"],
        ffn_embed_dim=width,
        expansion_ratio=width / row["hidden"],
    )
    analysis = LLMAnalysis(
        model,
        roomy(known(GPUS, row, "gpu")),
        known(PRECISIONS, row, "compute_dtype"),
        ParallelismConfig(dp_size=row["gpus"]),
        flops_efficiency=EFFICIENCY,
    )
    found = analysis.training(
        batch_size_per_gpu=row["micro_batch"],
        gradient_accumulation_steps=row["accumulation"],
        seq_len=row["sequence_length"],
        activation_recomputation=kept,
        ds_zero=DSZeRO(row["stage"]),
        flash_attn=row["attention"] == "flash",
        mlp_gated_linear_units=row["gated"],
        **states(row),
    )
    return {
        "step_seconds": found["latency_per_iter"],
        "peak_bytes": found["(weight+op_state+grad+act)_memory_per_gpu"],
    }


def states(row: Row) -> dict[str, int]:
    """Optimizer states: its own unless they are of two bytes. Its master copy sizes gradients."""
    if row["state_bytes"] != HALF or row["master_bytes"]:
        return {}
    return {"master_weights_dtype_bytes": HALF, "other_op_bytes": HALF}


if __name__ == "__main__":
    logger.setLevel("CRITICAL")
    serve("llm-analysis", price)
