"""Models that no rule knows are counted loudly or refused; experts are never left out."""

from typing import Final

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.architecture import Mlp
from zeroplan.spec.models import architecture_of
from zeroplan.spec.moe import MixtureOfExperts

SMALL: Final[dict[str, object]] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 96,
}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model_type": "llama", "num_moe_experts": 8}, "num_moe_experts"),
        ({"model_type": "unheard-of", "num_experts": 8}, "num_experts_per_tok"),
        ({"model_type": "unheard-of", "vision_config": {"depth": 2}}, "vision_config"),
        ({"model_type": "unheard-of", "mamba_d_state": 16}, "mamba_d_state"),
        ({"model_type": "unheard-of", "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"model_type": "nemotron-nas", "block_configs": []}, "0 entries"),
        ({"model_type": "nemotron-nas", "block_configs": 4 * [{"ffn": {}}]}, "group"),
        ({"model_type": "gpt_oss", "layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"model_type": "llama4_text", "no_rope_layers": [1]}, "no_rope_layers"),
    ],
)
def test_what_cannot_be_counted_is_one_clear_error(keys: dict[str, object], words: str) -> None:
    """Never dense by silence, never a traceback."""
    with pytest.raises(SpecError, match=words) as error:
        architecture_of({**SMALL, **keys}, "config.json", "model")
    assert str(error.value).count("\n") <= 1


def test_an_unknown_decoder_says_what_it_assumed() -> None:
    """Counted as a Llama of the same sizes, loudly."""
    unknown = architecture_of({**SMALL, "model_type": "unheard-of", "zork": 3}, "file", "model")
    llama = architecture_of({**SMALL, "model_type": "llama"}, "file", "model")
    assert unknown.stacks == llama.stacks
    assert "NO RULE KNOWS model_type 'unheard-of'" in unknown.assumptions[0]
    assert any("zork" in note for note in unknown.assumptions)


def test_an_unknown_decoder_may_use_older_names() -> None:
    """What GPT-2 and its time called the same sizes."""
    older = {"n_embd": 32, "n_inner": 48, "n_layer": 4, "n_head": 4, "vocab_size": 96}
    found = architecture_of(older, "file", "model")
    assert found.stacks == architecture_of(SMALL, "file", "model").stacks


def test_an_unknown_mixture_counts_its_experts() -> None:
    """Sizes that the file states, in every layer behind the leading dense ones."""
    keys = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 1,
    }
    found = architecture_of({**SMALL, **keys}, "file", "model")
    parts = [block.sublayers[1].component for block in found.stacks[0].blocks]
    experts = MixtureOfExperts(hidden=32, experts=8, experts_per_token=2, width=24)
    assert parts == [Mlp(hidden=32, width=48), *3 * [experts]]


def test_an_unknown_decoder_names_every_key_that_it_lacks() -> None:
    """All of them at once."""
    with pytest.raises(SpecError, match=r"'num_hidden_layers'.*'intermediate_size'.*'vocab_size'"):
        architecture_of({"hidden_size": 32, "num_attention_heads": 4}, "config.json", "model")
