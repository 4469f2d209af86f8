"""Small models as their files describe them, and the command that runs them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zeroplan import cli

SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
FILES: dict[str, dict[str, object]] = {
    "llama": {**SHAPE, "architectures": ["LlamaForCausalLM"]},
    "mistral": {**SHAPE, "architectures": ["MistralForCausalLM"], "sliding_window": None},
    "qwen2": {**SHAPE, "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {**SHAPE, "architectures": ["Qwen3ForCausalLM"], "head_dim": 64},
    "mixtral": {
        **SHAPE,
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen3_moe": {
        **SHAPE,
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": 64,
        "moe_intermediate_size": 192,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    "deepseek_v3": {
        **SHAPE,
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_key_value_heads": 4,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 192,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": 256,
        "d_kv": 32,
        "num_heads": 4,
        "d_ff": 704,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "vocab_size": 1000,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {**SHAPE, "model_type": "gemma3_text", "head_dim": 64},
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 128,
            "intermediate_size": 352,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "image_size": 56,
            "patch_size": 14,
            "vision_use_head": False,
        },
        "mm_tokens_per_image": 4,
        "image_token_index": 5,
    },
    "mllama": {
        "architectures": ["MllamaForConditionalGeneration"],
        "text_config": {
            **SHAPE,
            "model_type": "mllama_text_model",
            "cross_attention_layers": [1],
            "pad_token_id": 0,
        },
        "vision_config": {
            "hidden_size": 128,
            "intermediate_size": 352,
            "attention_heads": 4,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "image_size": 56,
            "patch_size": 14,
            "max_num_tiles": 2,
            "vision_output_dim": 256,
            "intermediate_layers_indices": [0],
            "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        },
        "image_token_index": 5,
    },
    "qwen2_5_vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        **SHAPE,
        "vision_config": {"depth": 2, "hidden_size": 128, "num_heads": 4, "out_hidden_size": 256},
    },
    "bert": {
        "architectures": ["BertForMaskedLM"],
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 704,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
    },
    "olmo2": {**SHAPE, "architectures": ["Olmo2ForCausalLM"]},
    "gemma": {**SHAPE, "architectures": ["GemmaForCausalLM"], "head_dim": 64},
    "gemma3_text": {**SHAPE, "architectures": ["Gemma3ForCausalLM"], "head_dim": 64},
    "phi3": {**SHAPE, "architectures": ["Phi3ForCausalLM"], "pad_token_id": 0},
    "gpt_neox": {
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
    },
    "bloom": {
        "architectures": ["BloomForCausalLM"],
        "hidden_size": 64,
        "n_layer": 1,
        "n_head": 2,
        "vocab_size": 100,
    },
    "gpt2": {
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
    },
}


@pytest.fixture(scope="session")
def small_models() -> dict[str, dict[str, object]]:
    """What the file of each `model_type` says."""
    return FILES


@pytest.fixture
def model_file(tmp_path: Path) -> Callable[[str], str]:
    """A function that writes the file of a `model_type` and returns its path."""

    def write(model_type: str) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_type": model_type, **FILES[model_type]}))
        return str(path)

    return write


@pytest.fixture
def llama(model_file: Callable[[str], str]) -> str:
    """The path of a small Llama's file."""
    return model_file("llama")


@pytest.fixture
def zeroplan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `zeroplan validate` and return exit code, answer and complaint."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["zeroplan", "validate", *arguments])
        with pytest.raises(SystemExit) as done:
            cli.main()
        told = capsys.readouterr()
        return int(done.value.code or 0), told.out, told.err

    return run
