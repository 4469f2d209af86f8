"""What is exported reads back as the same spec, and says in the trainer's own keys what it can."""

import json
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation.resolve import resolve, strategy_groups
from zeroplan.foreign.formats import FORMATS, values_of
from zeroplan.foreign.reading import Reading, read_files
from zeroplan.foreign.remainder import kept_in, split_kept
from zeroplan.foreign.writing import WRITTEN, Written, write_file
from zeroplan.spec.reading import read_run
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec

NAMES = {"deepspeed": "ds.json", "accelerate": "a.yaml", "torchtitan": "t.toml", "fsdp2": "s.py"}
CHANGES: list[dict[str, Any]] = [
    {},
    {"gpus": 16, "micro_batch_size": 4, "gradient_accumulation_steps": 3, "gradient_clipping": 1.0},
    {"compute_dtype": "fp16", "activation_checkpointing": "none", "optimizer": "adam"},
    {"compute_dtype": "fp32", "optimizer": "sgd-momentum", "optimizer_implementation": "for-loop"},
    {"gpus": 32, "reduce_dtype": "bf16", "compile": True, "activation_checkpointing": "selective"},
    {"gpus": 64, "optimizer_implementation": "foreach", "load": "rank0", "link": "efa", "gpu": "a100-sxm4-80gb"},
    {"optimizer": "adamw-8bit", "sequence_length": 512, "ema": "bf16", "loss": "chunked"},
    {"model": "gpt2", "gpus": 4, "activation_checkpointing": "every-2", "optimizer": "lion"},
]  # fmt: skip
SPECIAL: dict[str, list[dict[str, Any]]] = {
    "zero0": [{"overlap_comm": True}],
    "zero1": [{"reduce_bucket_size": 10**8, "allgather_bucket_size": 2 * 10**8, "round_robin_gradients": True}, {"offload_optimizer": "cpu"}],
    "zero2": [{"offload_optimizer": "cpu", "offload_pin_memory": False}, {"communication_data_type": "fp32", "grad_accum_dtype": "fp32", "contiguous_gradients": False}],
    "zero3": [
        {"stage3_prefetch_bucket_size": 10**7, "stage3_param_persistence_threshold": 0, "sub_group_size": 10**8, "overlap_comm": False},
        {"offload_optimizer": "cpu", "offload_parameters": "cpu"},
        {"offload_optimizer": "nvme", "offload_parameters": "nvme", "offload_param_buffer_count": 6},
        {"gpus": 16, "zero_hpz_partition_size": 8, "zero_quantized_weights": True, "zero_quantized_gradients": True},
        {"gpus": 16, "mics_shard_size": 8, "deepspeed.version": "0.19.6"},
    ],
    "fsdp1": [{"shard_size": 1}, {"gpus": 16, "shard_size": 8, "reshard_after_forward": False}, {"backward_prefetch": "post", "use_orig_params": False}, {"offload_parameters": "cpu"}],
    "fsdp2": [
        {"reshard_after_forward": False, "root_reshard_after_forward": True}, {"root_wrap": "separate", "fp8": "tensorwise", "fp8_all_gather": True, "compile": True, "loss": "compiled"},
        {"offload_parameters": "cpu", "offload_pin_memory": False}, {"forward_prefetch_blocks": 2, "backward_prefetch_blocks": 3}, {"gpus": 16, "reshard_after_forward": 8}, {"offload_activations": True},
        {"shard_size": 8, "parameter_dtype": "bf16"}, {"optimizer_in_backward": True}, {"lora_rank": 16},
    ],
    "hsdp": [{"gpus": 32, "shard_size": 4}, {"gpus": 32, "replicate_size": 2, "all_reduce": "last"}, {"reshard_after_forward": False}],
    "ddp": [{"bucket_bytes": 104_857_600, "gradient_as_bucket_view": True, "synchronize_gradients": "last"}],
    "none": [{"gpus": 1}],
}  # fmt: skip
CAN: dict[str, tuple[str, ...]] = {
    "deepspeed": ("zero0", "zero1", "zero2", "zero3"),
    "accelerate": ("zero0", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp", "ddp", "none"),
    "torchtitan": ("fsdp2", "hsdp", "ddp", "none"),
    "fsdp2": ("fsdp2", "hsdp"),
}
OWN = {
    "deepspeed": {"sharding.strategy", "training.micro_batch_size", "training.gradient_accumulation_steps", "training.gradient_clipping", "cluster.gpus", "sharding.offload_optimizer", "sharding.deepspeed.reduce_bucket_size"},
    "accelerate": {"cluster.gpus", "sharding.strategy", "sharding.offload_parameters", "sharding.use_orig_params"},
    "torchtitan": {"cluster.gpus", "sharding.strategy", "training.micro_batch_size", "training.gradient_accumulation_steps", "training.sequence_length", "sharding.offload_parameters", "training.activation_checkpointing", "model.compile"},
    "fsdp2": {"cluster.gpus", "sharding.strategy", "training.parameter_dtype", "sharding.root_wrap", "sharding.offload_parameters", "sharding.forward_prefetch_blocks"},
}  # fmt: skip
"""What a format says in its own keys whatever the plan."""
PLANS = [
    (form, strategy, change)
    for form, strategies in CAN.items()
    for strategy in strategies
    for change in [*CHANGES, *SPECIAL[strategy]]
    if not (strategy == "none" and "gpus" in change and change["gpus"] > 1)
]


def _asked(strategy: str, change: dict[str, Any]) -> Run:
    flat = {"model": "llama-3.1-8b", "strategy": strategy, **change}
    if strategy == "none":
        flat["gpus"] = 1
    version = flat.pop("deepspeed.version", None)
    if version:
        flat["version"] = version
    return load_spec(**flat)


def exported(form: str, strategy: str, change: dict[str, Any]) -> tuple[Run, Written]:
    """Return a plan whose open keys are filled, and its file."""
    question = resolve(_asked(strategy, change))
    ranks = strategy_groups(question.strategies[0], question.run).shard.ranks
    return question.run, write_file(question.run, form, ranks)


def _reread(form: str, text: str, folder: Path) -> Reading:
    path = folder / NAMES[form]
    path.write_text(text)
    return read_files({form: path})


@pytest.mark.parametrize(("form", "strategy", "change"), PLANS)
def test_an_export_reads_back_as_the_same_spec(
    form: str, strategy: str, change: dict[str, Any], tmp_path: Path
) -> None:
    run, written = exported(form, strategy, change)
    again = read_run(_reread(form, written.text, tmp_path).values)
    assert again == run
    kept = (
        split_kept(values_of(FORMATS[form], written.text, "f"), "f")[1]
        if form == "deepspeed"
        else kept_in(written.text, "f")
    )
    assert OWN[form].isdisjoint(kept) or strategy in ("none", "ddp") or run.cluster.gpus <= 8


@pytest.mark.parametrize("form", WRITTEN)
def test_a_strategy_that_a_trainer_lacks_is_refused(form: str) -> None:
    strategy = "torch-zero1"
    with pytest.raises(SpecError, match=f"--format {form}"):
        exported(form, strategy, {})


def test_what_the_trainer_does_otherwise_is_told() -> None:
    _, written = exported("torchtitan", "fsdp2", {})
    told = "\n".join(written.remarks)
    assert "sharding.root_wrap = separate; the plan has together" in told
    assert "training.gradient_clipping = 1.0; the plan has 0.0" in told
    _, written = exported("accelerate", "fsdp2", {})
    assert written.remarks == (
        "accelerate itself has training.reduce_dtype = bf16; the plan has fp32",
    )


def test_what_the_user_changes_in_an_export_counts(tmp_path: Path) -> None:
    _, written = exported("fsdp2", "fsdp2", {"gpus": 8})
    changed = written.text.replace("REDUCE_DTYPE = torch.float32", "REDUCE_DTYPE = torch.bfloat16")
    assert changed != written.text
    found = _reread("fsdp2", changed, tmp_path)
    assert found.values["training.reduce_dtype"] == "bf16"
    assert any("training.reduce_dtype has changed" in remark for remark in found.remarks)


def test_deepspeeds_json_says_in_its_own_keys_what_it_can() -> None:
    _, written = exported(
        "deepspeed", "zero2", {"gpus": 16, "micro_batch_size": 2, "offload_optimizer": "cpu"}
    )
    found = json.loads(written.text)
    assert found["train_batch_size"] == 32
    assert found["zero_optimization"]["stage"] == 2
    assert found["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert set(found["zeroplan"]) <= {"model.source", "training.sequence_length", "cluster.gpu", "cluster.gpus_per_node", "cluster.link", "cluster.intra_link"}  # fmt: skip
