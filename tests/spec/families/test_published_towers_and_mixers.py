"""Published encoders, vision-language models and hybrids are counted to the last parameter."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.models import architecture_of
from zeroplan.workload.count import count_model

FILE: Final = Path(__file__).parents[1] / "configs" / "towers_and_mixers.json"
MODELS: Final[list[dict[str, Any]]] = json.loads(FILE.read_text())["models"]

TINY_LLAVA: Final[dict[str, Any]] = {
    "model_type": "llava_llama",
    "architectures": ["LlavaLlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32_000,
    "mm_projector_type": "mlp2x_gelu",
    "mm_vision_tower": "openai/clip-vit-large-patch14-336",
}


@pytest.mark.published
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"].split("/")[1])
def test_every_parameter_is_counted(model: dict[str, Any]) -> None:
    """Total, trainable, embedding and, for experts, active parameters are the class's own."""
    counted = count_model(architecture_of(model["config"], "file", "model"), 512)
    assert counted.total_parameters == model["total"]
    assert counted.trainable_parameters == model.get("trainable", model["total"])
    assert counted.active_parameters_per_token == model.get("active", model["total"])
    if model["embedding"]:
        assert counted.embedding_parameters == model["embedding"]


@pytest.mark.published
@pytest.mark.parametrize(
    ("text", "total"),
    [
        # Hub page of llava-hf/llava-1.5-7b-hf: 7.06B parameters; the file leaves out what Llama's
        # class has by default.
        ({"model_type": "llama", "vocab_size": 32_064}, 7_063_427_072),
        # Hub page of llava-hf/llava-v1.6-mistral-7b-hf: 7.57B, 4096 of them the row's end.
        (
            {
                "model_type": "mistral",
                "vocab_size": 32_064,
                "intermediate_size": 14_336,
                "num_key_value_heads": 8,
            },
            7_566_747_648 - 4096,
        ),
    ],
    ids=["vicuna", "mistral"],
)
def test_llava_takes_its_language_model_from_that_family(
    text: dict[str, object], total: int
) -> None:
    """A sparse text configuration is completed by its own family's class."""
    config = {
        "model_type": "llava",
        "text_config": text,
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
        },
    }
    assert count_model(architecture_of(config, "file", "model"), 512).total_parameters == total


def test_the_original_llava_file_is_the_converted_one_but_for_64_rows() -> None:
    """Conversion pads the vocabulary from 32000 to 32064, in the table and in the head."""
    converted = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "vocab_size": 32_064},
    }
    totals = [
        count_model(architecture_of(config, "file", "model"), 512).total_parameters
        for config in (converted, TINY_LLAVA)
    ]
    assert totals[0] - totals[1] == 2 * 64 * 4096


@pytest.mark.parametrize("tied", [True, False])
def test_t5_follows_the_file_on_its_head(tied: bool) -> None:
    """T5 1.1 has a head of its own, although the newest class always ties (google/t5-v1_1-small)."""
    config = {
        "model_type": "t5",
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "vocab_size": 32_128,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": tied,
    }
    found = count_model(architecture_of(config, "file", "model"), 512)
    # 76 961 152 parameters with a head, one matrix of 32 128 x 512 less without
    assert found.total_parameters == 76_961_152 - (32_128 * 512 if tied else 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "bert", "num_attention_heads": 7}, "divides the hidden size 64"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MxM"}, "letters of M"),
        ({"model_type": "nemotron_h"}, "which mixer each block holds"),
        ({"model_type": "nemotron_h", "layers_block_type": ["mlq"]}, "meant 'mlp'"),
        ({"model_type": "llava", "vision_config": {"model_type": "x"}}, "known image encoders"),
        ({"model_type": "llava", "text_config": {"model_type": "x"}}, "no rule"),
        ({"model_type": "llava", "vision_config": 3}, "write an object"),
        ({"model_type": "vit", "patch_size": 300}, "at most the image size"),
        ({"model_type": "vit", "image_size": [1, 2, 3]}, "a number or a pair"),
        (
            {"model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 2},
            "below the period 2",
        ),
        ({"model_type": "qwen3_5_text", "layer_types": ["linear_attention"]}, "each of the 2"),
        ({**TINY_LLAVA, "mm_projector_type": "qformer"}, "write linear"),
    ],
)
def test_what_cannot_be_built_is_said_in_one_line(change: dict[str, Any], said: str) -> None:
    """Place, key, value and remedy."""
    base = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": 99,
    }
    with pytest.raises(SpecError, match=said) as caught:
        architecture_of({**base, **change}, "config.json", "model")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("config.json: ")
