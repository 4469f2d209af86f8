"""Which rule reads which family: one explicit rule per `model_type`, imported when it is needed."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Final

from zeroplan.spec.architecture import Architecture
from zeroplan.spec.keys import Keys

__all__ = ["MODULES", "Rule", "family", "rule"]

Rule = Callable[[Keys, str], Architecture]
"""From the keys of a model file and the model's name to its description."""

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "contrastive": (
        "clip",
        "siglip",
    ),
    "decoders": (
        "arcee",
        "ernie4_5",
        "exaone",
        "exaone4",
        "helium",
        "hunyuan_v1_dense",
        "internlm",
        "internlm2",
        "internlm3",
        "minicpm",
        "ministral3",
        "seed_oss",
    ),
    "deepseek": (
        "deepseek",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "kimi_k2",
        "minicpm3",
        "mistral4",
    ),
    "delta_net": (
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    ),
    "encoder": (
        "bert",
        "distilbert",
        "roberta",
        "vit",
        "xlm-roberta",
    ),
    "encoder_decoder": (
        "bart",
        "mbart",
        "mt5",
        "t5",
        "umt5",
        "whisper",
    ),
    "gemma": (
        "gemma",
        "gemma2",
        "gemma3_text",
    ),
    "generic": ("generic",),
    "glm": (
        "chatglm",
        "glm",
        "glm4",
    ),
    "gpt": (
        "codegen",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "openai-gpt",
    ),
    "hybrid": (
        "bamba",
        "falcon_mamba",
        "jamba",
        "mamba",
        "mamba2",
        "nemotron_h",
    ),
    "layer_norm": (
        "cohere",
        "cohere2",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "starcoder2",
    ),
    "llama": (
        "baichuan",
        "granite",
        "llama",
        "mimo",
        "mistral",
        "phi3",
        "qwen",
        "qwen2",
        "qwen3",
        "smollm3",
        "yi",
    ),
    "mllama": ("mllama",),
    "moe": (
        "dots1",
        "glm4_moe",
        "granitemoe",
        "minimax_m2",
        "mixtral",
        "olmoe",
        "phimoe",
        "qwen2_moe",
        "qwen3_moe",
    ),
    "moe_layouts": (
        "dbrx",
        "ernie4_5_moe",
        "gpt_oss",
        "grok-1",
        "llama4_text",
    ),
    "nas": (
        "deci",
        "decilm",
        "nemotron-nas",
    ),
    "open_gpt": (
        "RefinedWeb",
        "RefinedWebModel",
        "bloom",
        "falcon",
        "mpt",
        "opt",
    ),
    "parallel": (
        "mixformer-sequential",
        "phi",
        "phi-msft",
        "stablelm",
        "stablelm_epoch",
    ),
    "qwen_vision": (
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
        "qwen3_vl_moe",
    ),
    "vision": (
        "gemma3",
        "llama4",
        "llava",
        "llava_llama",
        "llava_mistral",
        "llava_next",
        "llava_onevision",
        "llava_qwen",
        "mistral3",
        "paligemma",
    ),
}
"""Module of this package: the `model_type`s that its `RULES` has."""

CLASS_SUFFIX: Final = re.compile(
    r"(LMHead|ForCausalLM|ForConditionalGeneration|ForMaskedLM|ForPreTraining|ForSequence"
    r"|ForImage|ForVision|ForTokenClassification|Model).*$"
)


def family(model_type: str, class_name: str) -> str | None:
    """Return the `model_type` whose rule applies; None where no rule knows the model.

    A file without a known `model_type` is recognised by its class: `Qwen2MoeForCausalLM`.
    """
    known = {_plain(name): name for names in MODULES.values() for name in names}
    by_class = known.get(_plain(CLASS_SUFFIX.sub("", class_name)))
    return known.get(_plain(model_type), by_class)


def rule(model_type: str) -> Rule:
    """Return a family's rule; only the module that holds it is imported."""
    for module, names in MODULES.items():
        if model_type in names:
            found: Rule = import_module(f"zeroplan.spec.families.{module}").RULES[model_type]
            return found
    raise KeyError(model_type)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
