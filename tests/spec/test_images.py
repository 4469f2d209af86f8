"""Images are counts of tokens: in the tower, and in what attends to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.architecture import Attention
from zeroplan.spec.images import image_note, with_images
from zeroplan.spec.models import architecture_of

MLLAMA: dict[str, Any] = {
    "model_type": "mllama",
    "architectures": ["MllamaForConditionalGeneration"],
    "text_config": {
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 704,
        "vocab_size": 1000,
        "cross_attention_layers": [1],
    },
    "vision_config": {"image_size": 56, "patch_size": 14, "max_num_tiles": 2},
}


def memory(count: int, tokens: int | None) -> tuple[int | None, int | None]:
    """Return the tower's positions and those that cross-attention sees."""
    found = with_images(architecture_of(MLLAMA, "config", "model"), count, tokens)
    (attention,) = {
        part.component.memory_positions
        for block in found.stacks[-1].blocks
        for part in block.sublayers
        if isinstance(part.component, Attention) and part.component.memory_width
    }
    return found.stacks[0].positions, attention


def test_tiles_are_padded_in_the_tower_and_not_behind_it() -> None:
    """16 patches and a class token of two tiles: 24 each in the tower, 17 outside."""
    assert memory(1, None) == (48, 34)


@pytest.mark.parametrize(
    ("count", "tokens", "seen"), [(3, None, (144, 102)), (1, 96, (96, 68)), (2, 96, (192, 136))]
)
def test_more_images_are_more_tokens(count: int, tokens: int | None, seen: tuple[int, int]) -> None:
    assert memory(count, tokens) == seen


def test_what_was_chosen_is_told_once() -> None:
    architecture = architecture_of(MLLAMA, "config", "model")
    assert image_note(1, 48) in architecture.assumptions
    told = with_images(architecture, 2, None).assumptions
    assert image_note(1, 48) not in told
    assert told[-1] == "2 images of 48 tokens per sequence go through the vision tower"


def test_a_model_without_a_tower_stays_as_it_is() -> None:
    """Its keys are ignored with a note."""
    bare = {**MLLAMA["text_config"], "model_type": "llama"}
    architecture = architecture_of(bare, "config", "model")
    assert with_images(architecture, 3, 100) is architecture


def test_what_pools_an_image_pools_one_of_any_size() -> None:
    """CLIP's projection reads one token of each image."""
    models = json.loads((Path(__file__).parent / "configs" / "towers_and_mixers.json").read_text())
    clip = next(each for each in models["models"] if "clip" in each["model"])
    found = with_images(architecture_of(clip["config"], "config", "model"), 2, 17).stacks[0]
    (pooled,) = found.tail
    assert (found.positions, pooled.rate) == (34, (1, 17))


def test_fewer_tokens_than_a_merger_takes_are_refused() -> None:
    models = json.loads((Path(__file__).parent / "configs" / "towers_and_mixers.json").read_text())
    qwen = next(each for each in models["models"] if "Qwen2.5-VL" in each["model"])
    with pytest.raises(SpecError, match=r"image_tokens = 3.*merges 4"):
        with_images(architecture_of(qwen["config"], "config", "model"), 1, 3)
