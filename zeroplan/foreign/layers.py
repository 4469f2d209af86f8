"""What a trainer's file asks of the model: its hidden size, and the class of its layers.

Source: `_no_split_modules` and `attribute_map` of transformers' classes (5.24).
"""

from typing import Final

from zeroplan.foreign.draft import Draft
from zeroplan.spec.models import model_keys

__all__ = ["LAYERS", "hidden_size", "layer_class", "model_type"]

WIDTHS: Final = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
"""Names of the hidden size; the configuration classes map the others to the first."""

LAYERS: Final = {
    "bart": "BartDecoderLayer",
    "bert": "BertLayer",
    "bloom": "BloomBlock",
    "clip": "CLIPEncoderLayer",
    "codegen": "CodeGenBlock",
    "cohere": "CohereDecoderLayer",
    "cohere2": "Cohere2DecoderLayer",
    "deepseek_v2": "DeepseekV2DecoderLayer",
    "deepseek_v3": "DeepseekV3DecoderLayer",
    "falcon": "FalconDecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3": "Gemma3DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "glm": "GlmDecoderLayer",
    "glm4": "Glm4DecoderLayer",
    "glm4_moe": "Glm4MoeDecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_bigcode": "GPTBigCodeBlock",
    "gpt_neo": "GPTNeoBlock",
    "gpt_neox": "GPTNeoXLayer",
    "gpt_oss": "GptOssDecoderLayer",
    "gptj": "GPTJBlock",
    "granite": "GraniteDecoderLayer",
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "mpt": "MptBlock",
    "nemotron": "NemotronDecoderLayer",
    "olmo": "OlmoDecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "olmoe": "OlmoeDecoderLayer",
    "opt": "OPTDecoderLayer",
    "phi": "PhiDecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen2_moe": "Qwen2MoeDecoderLayer",
    "qwen2_vl": "Qwen2VLDecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "smollm3": "SmolLM3DecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
    "t5": "T5Block",
    "vit": "ViTLayer",
    "whisper": "WhisperDecoderLayer",
}
"""The class of a model's repeated layer, which accelerate wraps where a file names none."""


def hidden_size(source: str, draft: Draft) -> int:
    """Return what the trainer finds as `hidden_size` in the model's configuration."""
    found = model_keys(source)
    inner = found.get("text_config")
    for held in (found, inner if isinstance(inner, dict) else {}):
        for name in WIDTHS:
            if isinstance(held.get(name), int):
                return int(str(held[name]))
    raise draft.fault(
        f'model {source}: no hidden size from which the trainer could fill an "auto" in; write the '
        "number instead."
    )


def model_type(source: str) -> str:
    """Return the family of a model."""
    return str(model_keys(source).get("model_type", "llama"))


def layer_class(source: str) -> str | None:
    """Return the class of a model's layers; None where it is not known here."""
    return LAYERS.get(model_type(source))
