"""What is trained, and what the frozen rest is worth: counts, errors, packed sizes."""

import json
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.explain import explain
from zeroplan.workload.adapters import constant_sizes

ONE: dict[str, Any] = {"strategy": "none", "gpus": 1, "sequence_length": 512}


def test_adapters_are_as_many_as_peft_says() -> None:
    """alpaca-lora prints for Llama 7B, rank 8, q and v: 4,194,304 of 6,742,609,920."""
    found = estimate(model="llama-2-7b", lora_rank=8, lora_targets="q_proj,v_proj", **ONE)
    assert (found.trainable_parameters, found.total_parameters) == (4_194_304, 6_742_609_920)


def test_packed_weights_count_as_what_they_were() -> None:
    plain, packed = (
        estimate(model="llama-3-8b", lora_rank=16, base_quantization=word, **ONE)
        for word in ("none", "nf4")
    )
    assert packed.total_parameters == plain.total_parameters
    assert packed.trainable_parameters == plain.trainable_parameters == 41_943_040


def test_four_bits_take_half_a_byte_and_their_scales() -> None:
    """QLoRA's paper: 0.5 bits a parameter for scales, 0.127 where they are quantised too."""
    elements = 4096 * 4096
    for double, bits in ((False, 0.5), (True, 0.127)):
        assert 8 * sum(constant_sizes(elements, double=double)) / elements == pytest.approx(
            bits, abs=0.001
        )


def test_nothing_runs_backward_before_the_first_trained_block() -> None:
    """The last two blocks of 32: no activations of the others are kept."""
    keys = {**ONE, "model": "llama-3-8b", "precision": "bf16", "activation_checkpointing": "none"}
    keys |= {"sequence_length": 4096, "optimizer": "sgd"}
    whole, part = (
        estimate(trainable=parts, **keys).estimates[0].memory.peak_breakdown_bytes
        for parts in ("all", "last-2,norm,head")
    )
    assert 0 < part.activations < whole.activations / 10


def test_a_frozen_weight_costs_no_gradient() -> None:
    """Backward is one pass where everything is frozen but small adapters, not two."""
    keys = {**ONE, "model": "llama-3-8b", "precision": "bf16", "sequence_length": 4096}
    whole, adapters = (estimate(lora_rank=rank, **keys).estimates[0].time for rank in (0, 16))
    assert whole.compute_seconds is not None
    assert adapters.compute_seconds is not None
    assert adapters.compute_seconds < 0.95 * whole.compute_seconds


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"lora_rank": 8, "lora_targets": "q_proj,w1"}, "'w1'.*q_proj.*down_proj"),
        ({"trainable": "tail"}, "'tail'.*embedding"),
        ({"trainable": "none"}, "trains nothing"),
        ({"trainable": "all", "lora_rank": 8}, "leaves nothing frozen"),
        ({"base_quantization": "nf4"}, "cannot be trained"),
        (
            {"lora_rank": 8, "base_quantization": "int8", "strategy": "zero3", "gpus": 2},
            "no integer weights",
        ),
        (
            {
                "lora_rank": 8,
                "base_quantization": "nf4",
                "quantization_storage": "uint8",
                "strategy": "zero3",
                "gpus": 2,
            },
            "use 'bf16'",
        ),
        (
            {"lora_rank": 8, "frozen_dtype": "bf16", "strategy": "fsdp1", "gpus": 2},
            "use_orig_params = false",
        ),
        ({"model": "gpt2", "trainable": "last-1,head"}, "same parameter.*embedding and head"),
        ({"lora_rank": 8, "ema": "fp32"}, "ema.*frozen"),
        ({"lora_rank": 8, "reference_model": True}, "disable_adapter"),
        (
            {"lora_rank": 8, "fp8": "rowwise", "compile": True, "precision": "bf16"},
            "fp8.*frozen",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_plain_words(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        estimate(**{"model": "llama-3-8b", **ONE, **keys})


def test_adapters_need_a_layer(tmp_path: Path) -> None:
    """Mamba has no feed-forward layer."""
    sizes = {"hidden_size": 64, "state_size": 16, "num_hidden_layers": 2, "vocab_size": 100}
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "mamba", "architectures": ["MambaForCausalLM"], **sizes})
    )
    with pytest.raises(SpecError, match="no such linear"):
        estimate(model=str(path), lora_rank=8, lora_targets="mlp", **ONE)


def test_strategies_that_cannot_hold_integers_are_left_out() -> None:
    found = estimate(model="llama-3-8b", gpus=8, lora_rank=8, base_quantization="int8")
    assert [each.strategy for each in found.estimates] == ["ddp", "zero1", "zero2"]
    assert any("left out" in note for note in found.notes)


def test_strategies_that_gather_in_one_dtype_are_left_out_where_packed_weights_have_another() -> (
    None
):
    keys: dict[str, Any] = {"model": "llama-3-8b", "gpus": 8, "lora_rank": 8}
    keys["base_quantization"] = "nf4"
    found = estimate(**keys, quantization_storage="fp32")
    assert "zero3" not in [each.strategy for each in found.estimates]
    with pytest.raises(SpecError, match="zero3 shards 4-bit weights only"):
        estimate(**keys, quantization_storage="fp32", strategy="zero3")


def test_an_explanation_offers_four_bits_for_a_frozen_base() -> None:
    found = explain(model="llama-3-8b", strategy="ddp", gpus=2, lora_rank=16, sequence_length=512)
    assert found.remedies[0].change == "base_quantization nf4"


def test_qlora_needs_what_a_measured_planner_says() -> None:
    """fitcheck 0.3.1, fitted to measured runs: 29.28 GiB on the device, 7.57 of it the base.

    Llama 3 8B, rank 16, 8192 tokens, checkpointed; what is not packed is cast to fp32
    (`prepare_model_for_kbit_training`), and the scales are not quantised.
    """
    (found,) = estimate(
        model="llama-3-8b",
        strategy="none",
        gpus=1,
        gpu="a100-sxm4-80gb",
        lora_rank=16,
        base_quantization="nf4",
        double_quantization=False,
        frozen_dtype="fp32",
        sequence_length=8192,
    ).estimates
    gib = 2**30
    assert found.memory.parameters_bytes / gib == pytest.approx(7.57 + 0.16, rel=0.02)
    assert (found.memory.device_bytes or 0) / gib == pytest.approx(29.28, rel=0.1)
