"""ftuneai: MemoryEstimator and TimeEstimator on a model that is told, not looked up."""

from driver import Answer, Row, known, serve, unsharded_across
from ftuneai.core.memory import MemoryEstimator
from ftuneai.core.models import FineTuneMethod, ModelSpec, ShardingStrategy, TrainingConfig
from ftuneai.core.time import TimeEstimator
from ftuneai.loader import get_gpu

GPUS = {
    "a100-sxm4-40gb": "A100-40GB",
    "a100-sxm4-80gb": "A100-80GB",
    "h100-sxm5-80gb": "H100-80GB",
    "h100-sxm-96gb-hbm2e": "H100-80GB",
    "v100-sxm2-16gb": "V100-16GB",
    "v100-sxm2-32gb": "V100-32GB",
}
CHECKPOINTING = {"full": True, "none": False}
STRATEGIES = ("none", "zero_1", "zero_2", "zero_3")
FSDP = {2: "fsdp_shard_grad", 3: "fsdp"}
STEPS = 10**8
"""Hours are rounded to hundredths, so many steps are asked for."""


def price(row: Row) -> Answer:
    unsharded_across(row)
    checkpointed = known(CHECKPOINTING, row, "checkpointing")
    gpu = get_gpu(known(GPUS, row, "gpu"))
    named = STRATEGIES[row["stage"]]
    if row["strategy"].startswith("fsdp"):
        named = FSDP.get(row["stage"], named)
    model = ModelSpec(
        name="row",
        parameters=row["parameters"],
        hidden_size=row["hidden"],
        num_layers=row["layers"],
        num_attention_heads=row["heads"],
        num_kv_heads=row["kv_heads"],
        intermediate_size=row["ffn"],
        vocab_size=row["vocabulary"],
        max_seq_length=row["sequence_length"],
        default_dtype=row["compute_dtype"],
    )
    config = TrainingConfig(
        method=FineTuneMethod.FULL,
        batch_size=row["micro_batch"],
        seq_length=row["sequence_length"],
        gradient_checkpointing=checkpointed,
        flash_attention=row["attention"] == "flash",
        sharding=ShardingStrategy(named),
        num_gpus=row["gpus"],
    )
    memory = MemoryEstimator(model, config).estimate()
    time = TimeEstimator(model, config).estimate(
        gpu,
        dataset_size=row["micro_batch"] * row["accumulation"] * row["gpus"] * STEPS,
        epochs=1,
        num_gpus=row["gpus"],
    )
    return {"step_seconds": time.total_hours * 3600 / STEPS, "peak_bytes": memory.total_gb * 2**30}


if __name__ == "__main__":
    serve("ftuneai", price)
