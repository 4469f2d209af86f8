"""What a user writes becomes a run; what is written out reads back as the same run."""

import io
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.spec.applies import ignored_keys, model_notes
from zeroplan.spec.models import load_architecture
from zeroplan.spec.reading import PRECISIONS, keys
from zeroplan.spec.run import ClusterChoice, DeepSpeed, ModelChoice, Run, ShardingChoice
from zeroplan.spec.toml import load_spec, to_dict, to_toml

SPEC = """
schema_version = 1

[model]
source = "llama-3.1-8b"
attention = "flash-expanded-kv"

[training]
sequence_length = 8192
activation_checkpointing = "every-2"

[sharding]
strategy = "fsdp2"
shard_size = 64
root_reshard_after_forward = "auto"
reshard_after_forward = 8

[sharding.deepspeed]
reduce_bucket_size = 5e8
overlap_comm = true

[cluster]
gpus = 64
link = "ib-ndr400"
"""


def test_a_spec_file_sets_what_it_names_and_leaves_the_rest_to_the_defaults(
    tmp_path: Path,
) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    run = load_spec(file)
    assert run.model == ModelChoice(source="llama-3.1-8b", attention="flash-expanded-kv")
    assert run.training.sequence_length == 8192
    assert run.training.checkpoint_every == 2
    assert run.sharding == ShardingChoice(
        strategy="fsdp2",
        shard_size=64,
        reshard_after_forward=8,
        deepspeed=DeepSpeed(overlap_comm=True),
    )
    assert run.cluster == ClusterChoice(gpus=64, link="ib-ndr400")


def test_named_keys_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    assert load_spec(file, gpus=128).cluster == ClusterChoice(gpus=128, link="ib-ndr400")


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(SPEC))
    assert load_spec("-").cluster.gpus == 64


def test_a_model_file_is_found_beside_the_spec_file(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    file = tmp_path / "spec.toml"
    file.write_text('[model]\nsource = "mine/config.json"')
    assert load_spec(file).model.source == str(tmp_path / "mine" / "config.json")


def test_deepspeeds_defaults_are_those_of_its_own_configuration() -> None:
    """deepspeed/runtime/zero/config.py, version 0.19.8."""
    assert to_dict(load_spec(model="70b"))["sharding"]["deepspeed"] == {
        "reduce_bucket_size": 500_000_000,
        "allgather_bucket_size": 500_000_000,
        "overlap_comm": "auto",
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "use_multi_rank_bucket_allreduce": True,
        "round_robin_gradients": False,
        "sub_group_size": 1_000_000_000,
        "stage3_prefetch_bucket_size": 50_000_000,
        "stage3_param_persistence_threshold": 100_000,
        "stage3_max_live_parameters": 1_000_000_000,
        "stage3_max_reuse_distance": 1_000_000_000,
        "version": "0.19.8",
        "mics_shard_size": "auto",
        "mics_hierarchical_params_gather": False,
        "zero_hpz_partition_size": 1,
        "zero_quantized_weights": False,
        "zero_quantized_gradients": False,
        "communication_data_type": "auto",
        "grad_accum_dtype": "auto",
        "offload_param_buffer_count": 5,
        "offload_param_buffer_size": 100_000_000,
        "offload_param_max_in_cpu": 1_000_000_000,
        "offload_optimizer_buffer_count": 4,
        "offload_optimizer_ratio": 1.0,
    }


def test_only_the_model_has_no_default() -> None:
    assert [dotted for dotted, key in keys().items() if key.default is MISSING] == ["model.source"]


def test_a_bare_name_is_enough_to_tell_keys_apart() -> None:
    assert len({key.name for key in keys().values()}) == len(keys())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precision_sets_the_three_dtypes(precision: str) -> None:
    training = load_spec(model="70b", precision=precision).training
    assert (
        training.parameter_dtype,
        training.compute_dtype,
        training.reduce_dtype,
    ) == PRECISIONS[precision]


def test_mixed_precision_is_the_default() -> None:
    assert load_spec(model="70b", precision="bf16-mixed") == load_spec(model="70b")


def test_a_dtype_wins_over_the_shorthand_beside_it() -> None:
    training = load_spec(model="70b", precision="bf16", reduce_dtype="fp32").training
    assert (training.compute_dtype, training.reduce_dtype) == ("bf16", "fp32")


def test_a_later_shorthand_wins_over_an_earlier_dtype(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('[model]\nsource = "70b"\n[training]\ncompute_dtype = "fp16"')
    assert load_spec(file, precision="bf16").training.compute_dtype == "bf16"


@given(
    source=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    sequence_length=st.none() | st.integers(1, 10**8),
    compile=st.booleans(),
    clipping=st.floats(0, 1e9),
    reshard=st.booleans() | st.sampled_from([1, 2, 4, 8]),
    root=st.none() | st.booleans(),
    buckets=st.integers(0, 10**15),
    overlap=st.none() | st.booleans(),
    link=st.none() | st.text("abc-123", min_size=1),
)
def test_every_run_reads_back_from_what_is_written_out(**values: object) -> None:
    run = load_spec(
        model=values["source"],
        sequence_length=values["sequence_length"],
        compile=values["compile"],
        gradient_clipping=values["clipping"],
        reshard_after_forward=values["reshard"],
        root_reshard_after_forward=values["root"],
        reduce_bucket_size=values["buckets"],
        overlap_comm=values["overlap"],
        link=values["link"],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(to_toml(run)))
        assert load_spec("-") == run


def test_a_key_that_no_strategy_reads_is_noted() -> None:
    run = load_spec(
        model="70b",
        strategy="fsdp2",
        bucket_bytes=1,
        stage3_max_live_parameters=0,
        reduce_bucket_size=1,
        reshard_after_forward=False,
    )
    assert ignored_keys(run, ["fsdp2"]) == (
        "sharding.bucket_bytes is ignored: it is a key of ddp, torch-zero1 only.",
        (
            "sharding.deepspeed.reduce_bucket_size is ignored: "
            "it is a key of zero0, zero1, zero2, zero3 only."
        ),
        "sharding.deepspeed.stage3_max_live_parameters is ignored: it is a key of zero3 only.",
    )


def test_a_key_that_one_of_the_strategies_reads_is_not_noted() -> None:
    run = load_spec(model="70b", bucket_bytes=1)
    assert ignored_keys(run, ["ddp", "fsdp2"]) == ()


def test_defaults_are_never_noted() -> None:
    assert ignored_keys(load_spec(model="70b"), ["none"]) == ()


@pytest.mark.parametrize(
    ("checkpointing", "every"),
    [("none", 0), ("selective", 0), ("full", 1), ("every-3", 3)],
)
def test_checkpointing_says_every_how_many_blocks(checkpointing: str, every: int) -> None:
    run: Run = load_spec(model="70b", activation_checkpointing=checkpointing)
    assert run.training.checkpoint_every == every
    assert replace(run.training, activation_checkpointing="full").checkpoint_every == 1


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({"model": "gpt2", "rope": "complex"}, "model.rope is ignored: gpt2 has no rotary"),
        ({"model": "gpt2", "norm": "eager"}, "model.norm is ignored: gpt2 has no RMSNorm"),
        ({"model": "gpt2", "sequence_length": 2048}, "2048 is beyond the 1024 positions"),
    ],
)
def test_keys_without_a_meaning_for_the_model_are_told(keys: dict[str, Any], note: str) -> None:
    run = load_spec(**keys)
    (told,) = model_notes(run, load_architecture(run.model.source))
    assert note in told


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3"])
def test_keys_with_a_meaning_for_the_model_need_no_note(model: str) -> None:
    run = load_spec(model=model, rope="complex", norm="eager")
    assert model_notes(run, load_architecture(model)) == ()
