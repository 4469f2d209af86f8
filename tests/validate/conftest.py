"""Small models as their files describe them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 256,
    "n_layer": 3,
    "n_head": 4,
    "vocab_size": 1001,
    "n_positions": 512,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 0,
}

ModelFile = Callable[..., str]
"""Takes a description and keys that differ from it; returns the path of the file."""


@pytest.fixture
def model_file(tmp_path: Path) -> ModelFile:
    """A function that writes a model file and returns its path."""

    def write(keys: dict[str, object], **other: object) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**keys, **other}))
        return str(path)

    return write


@pytest.fixture
def llama(model_file: ModelFile) -> str:
    """The path of a small Llama's file."""
    return model_file(LLAMA)


@pytest.fixture
def gpt2(model_file: ModelFile) -> str:
    """The path of a small GPT-2's file."""
    return model_file(GPT2)
