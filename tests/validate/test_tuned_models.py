"""Adapters, frozen parts and packed weights in the real framework, on fake tensors."""

from collections.abc import Callable
from typing import Any

import pytest

from zeroplan.errors import MissingPartError
from zeroplan.validate import validate

pytestmark = pytest.mark.torch

LORA: dict[str, Any] = {"sequence_length": 128, "lora_rank": 8}
CASES: dict[str, dict[str, Any]] = {
    "one GPU": {"strategy": "none", "gpus": 1, "precision": "bf16"},
    "one GPU, kept": {"strategy": "none", "gpus": 1, "activation_checkpointing": "none"},
    "ddp": {"strategy": "ddp", "gpus": 4, "lora_targets": "q_proj,v_proj"},
    "fsdp2": {"strategy": "fsdp2", "gpus": 4},
    "fsdp2, packed": {"strategy": "fsdp2", "gpus": 4, "base_quantization": "nf4"},
    "fsdp1 together": {"strategy": "fsdp1", "gpus": 4, "precision": "bf16"},
    "a part": {"strategy": "fsdp2", "gpus": 4, "lora_rank": 0, "trainable": "last-1,head"},
}


@pytest.mark.parametrize("asked", CASES.values(), ids=CASES)
def test_a_step_shows_what_was_predicted(
    asked: dict[str, Any], model_file: Callable[[str], str]
) -> None:
    found = validate(model=model_file("llama"), tolerance=0.001, **{**LORA, **asked})
    assert found.inside, found.largest


def test_the_class_of_transformers_takes_the_same_adapters(
    model_file: Callable[[str], str],
) -> None:
    found = validate(
        model=model_file("llama"),
        model_class="transformers",
        strategy="none",
        gpus=1,
        norm="eager",
        **LORA,
    )
    backward = next(each for each in found.differences if each.name == "peak in backward")
    assert backward.within(0.01)


@pytest.mark.parametrize("experts", ["grouped", "loop"])
def test_frozen_routers_and_experts_keep_their_weights_alone(
    experts: str, model_file: Callable[[str], str]
) -> None:
    """The class also counts its rotary tables, 8 KiB here, as kept."""
    found = validate(
        model=model_file("deepseek_v3"),
        model_class="transformers",
        strategy="none",
        gpus=1,
        norm="eager",
        precision="bf16",
        activation_checkpointing="none",
        experts=experts,
        **LORA,
    )
    told = {each.name: each for each in found.differences}
    assert told["kept by forward"].within(0.002)
    assert told["peak in forward"].within(0.0005)
    assert told["peak in backward"].within(0.0005)


def test_integers_are_not_run(model_file: Callable[[str], str]) -> None:
    with pytest.raises(MissingPartError, match="int8"):
        validate(model=model_file("llama"), strategy="ddp", base_quantization="int8", **LORA)
