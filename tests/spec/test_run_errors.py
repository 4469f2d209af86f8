"""A wrong spec is told in one line, with the place, the value and what would be right."""

from pathlib import Path

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.toml import MAX_BYTES, load_spec

NAN = float("nan")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"gpus": 0}, "cluster.gpus = 0: expected a whole number from 1 to 1,000,000."),
        ({"gpus": -8}, "cluster.gpus = -8: expected a whole number from 1 to 1,000,000."),
        ({"gpus": 10**400}, "expected a whole number from 1 to 1,000,000."),
        ({"gpus": 8.5}, "cluster.gpus = 8.5: expected a whole number"),
        ({"gpus": True}, "cluster.gpus = true: expected a whole number"),
        ({"gpus": "8"}, 'cluster.gpus = "8": expected a whole number'),
        ({"gpus": None}, "cluster.gpus = null: expected a whole number"),
        ({"compile": 1}, "model.compile = 1: expected true or false."),
        ({"gradient_clipping": NAN}, "training.gradient_clipping = NaN: expected a number from 0"),
        ({"gradient_clipping": float("inf")}, "Infinity: expected a number from 0"),
        ({"gradient_clipping": "x" * 500}, f'"{"x" * 59}...: expected a number'),
        ({"source": 7}, "model.source = 7: expected text."),
        ({"attention": "flahs"}, "Perhaps you meant 'flash'?"),
        ({"strategy": "fsdp"}, "Perhaps you meant 'fsdp"),
        ({"activation_checkpointing": "every-0"}, "none, full, selective or every-K."),
        ({"reshard_after_forward": 0}, "expected true or false or a whole number from 1"),
        ({"overlap_comm": "yes"}, "expected true or false or auto."),
        ({"seqlen": 1}, "seqlen: unknown key."),
        ({"sequence_lenght": 1}, "Perhaps you meant 'sequence_length'?"),
        ({"stratgy": "fsdp2"}, "stratgy: unknown key. Perhaps you meant 'strategy'?"),
        ({"modle": "8b"}, "modle: unknown key. Perhaps you meant 'model'?"),
        ({"sharding.stratgy": "fsdp2"}, "Perhaps you meant 'sharding.strategy'?"),
        ({"gpus": 12, "gpus_per_node": 8}, "use 8 or 16 GPUs, or another gpus_per_node."),
        ({"gpus": 64, "shard_size": 8, "replicate_size": 4}, "is not cluster.gpus = 64"),
        ({"gpus": 64, "shard_size": 7}, "shard_size = 7 does not divide cluster.gpus = 64."),
        (
            {"activation_checkpointing": "selective", "checkpoint_reentrant": True},
            "checkpoint_reentrant = true does not go with",
        ),
        ({"gpus": 64, "reshard_after_forward": 5}, "does not divide the 64 ranks"),
        ({"zero_hpz_partition_size": 5}, "zero_hpz_partition_size = 5 does not divide"),
        (
            {"zero_quantized_gradients": True, "reduce_scatter": False},
            "zero_quantized_gradients = true needs reduce_scatter = true",
        ),
        ({"mics_shard_size": 4}, "DeepSpeed 0.19.8 has no MiCS. Set sharding.deepspeed.version"),
        ({"mics_shard_size": 4, "version": "0.19.7"}, "DeepSpeed 0.19.7 has no MiCS."),
        ({"zero_hpz_partition_size": 8, "version": "0.9.5"}, "DeepSpeed 0.9.5 has no ZeRO++."),
        ({"zero_quantized_weights": True, "version": "0.9.5"}, "0.10.0 or newer, or leave the key"),
        ({"zero_quantized_gradients": True, "version": "0.9.5"}, "zero_quantized_gradients: Deep"),
        ({"mics_shard_size": 3, "version": "0.19.6"}, "mics_shard_size = 3 does not divide"),
        (
            {"mics_shard_size": 4, "version": "0.19.6", "zero_quantized_weights": True},
            "does not go with ZeRO++'s keys",
        ),
        (
            {
                "mics_shard_size": 4,
                "version": "0.19.6",
                "mics_hierarchical_params_gather": True,
                "gpus_per_node": 4,
            },
            "is one node of 4 GPUs: mics_hierarchical_params_gather needs several.",
        ),
        ({"version": "0.19"}, "a version such as 0.19.8"),
        ({"strategy": "none"}, "set gpus = 1, or another strategy."),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(
    keys: dict[str, object], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(**{"model": "70b"} | keys)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = '70b'", ": model: a table; write [model] and its keys below it."),
        ("gpus = 64", ": gpus: unknown key. Perhaps you meant 'cluster.gpus'?"),
        ("stratgy = 'ddp'", ": stratgy: unknown key. Perhaps you meant 'sharding.strategy'?"),
        ("[model]\nstratgy = 1", ": model.stratgy: unknown key. Perhaps you meant 'sharding."),
        ("[model]\nsorce = '70b'", ": model.sorce: unknown key. Perhaps you meant 'model.source'?"),
        ("[cluster]\ngpus = '64'", ': cluster.gpus = "64": expected a whole number'),
        ("[cluster]\ngpus = 2024-01-01", ': cluster.gpus = "2024-01-01": expected'),
        ("[cluster]\ngpus = nan", ": cluster.gpus = NaN: expected a whole number"),
        ("[[cluster]]\ngpus = 1", ": cluster: a table; write [cluster]"),
        ("schema_version = 2", ": schema_version = 2: this zeroplan reads version 1."),
        ("[model", ": not TOML: "),
        ("", "model.source is missing"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert message in str(caught.value)
    assert str(caught.value).startswith((str(file), "model.source is missing"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"spec\.toml: No such file .*; give the path of .*--show-spec"
    ):
        load_spec(tmp_path / "spec.toml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not a text file"):
        load_spec(file)


def test_a_spec_that_is_no_file_or_too_long_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a file"):
        load_spec(tmp_path)
    long = tmp_path / "long.toml"
    long.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(SpecError, match="too long for a spec"):
        load_spec(long)
