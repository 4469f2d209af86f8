"""fitcheck-llm: `estimate` of full fine-tuning on the one GPU that it knows."""

from driver import FULL, Answer, InexpressibleError, Row, known, serve
from fitcheck.config_parser import ModelConfig
from fitcheck.estimator import TrainingConfig, estimate
from fitcheck.gpu_db import get_gpu

GPUS = {
    "a100-sxm4-40gb": "a100-40",
    "a100-sxm4-80gb": "a100-80",
    "h100-sxm5-80gb": "h100-80",
    "h100-sxm-96gb-hbm2e": "h100-80",
    "v100-sxm2-16gb": "v100-16",
    "b200-sxm": "b200",
}
CHECKPOINTING = {"full": True, "none": False}


def price(row: Row) -> Answer:
    if row["gpus"] > 1:
        raise InexpressibleError("several GPUs")
    model = ModelConfig(
        name="row",
        num_params=row["parameters"],
        hidden_size=row["hidden"],
        num_layers=row["layers"],
        num_attention_heads=row["heads"],
        num_kv_heads=row["kv_heads"],
        intermediate_size=row["ffn"],
        vocab_size=row["vocabulary"],
        head_dim=row["hidden"] // row["heads"],
        tie_word_embeddings=row["tied"],
    )
    training = TrainingConfig(
        precision=row["compute_dtype"],
        optimizer_dtype="fp32" if row["state_bytes"] == FULL else row["compute_dtype"],
        batch_size=row["micro_batch"],
        seq_len=row["sequence_length"],
        lora_rank=None,
        grad_checkpoint=known(CHECKPOINTING, row, "checkpointing"),
        flash_attn=row["attention"] == "flash",
        grad_accum_steps=row["accumulation"],
    )
    found = estimate(model, training, get_gpu(known(GPUS, row, "gpu")))
    return {"peak_bytes": found.total_mib * 2**20}


if __name__ == "__main__":
    serve("fitcheck-llm", price)
