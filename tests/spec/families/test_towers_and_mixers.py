"""Encoders, vision-language models and hybrids against transformers 5.24 on the meta device.

Every class is built small, as it stands and with its switches turned; the parameters' shapes must
be the same, one for one.
"""

from collections import Counter
from typing import Any, Final

import pytest

from zeroplan.spec.models import architecture_of
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import workload

pytestmark = pytest.mark.torch

Config = dict[str, Any]

SMALL: Final[Config] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 70,
    "vocab_size": 99,
    "max_position_embeddings": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TEXT: Final[Config] = {**SMALL, "num_key_value_heads": 2, "head_dim": 16}
TOWER: Final[Config] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 50,
    "image_size": 28,
    "patch_size": 7,
}
QWEN_TOWER: Final[Config] = {
    "depth": 2,
    "hidden_size": 32,
    "out_hidden_size": 64,
    "intermediate_size": 44,
    "num_heads": 4,
    "patch_size": 7,
    "num_position_embeddings": 16,
}
SIDES: Final[Config] = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 70,
    "decoder_ffn_dim": 50,
    "vocab_size": 99,
    "pad_token_id": 0,
}
T5: Final[Config] = {"d_model": 48, "d_kv": 10, "num_heads": 3, "d_ff": 77, "vocab_size": 99}
DELTA: Final[Config] = {
    **TEXT,
    "num_hidden_layers": 6,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3,
}
DELTA_EXPERTS: Final[Config] = {
    **DELTA,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 20,
}
NEMOTRON: Final[Config] = {
    **TEXT,
    "head_dim": 24,
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "n_groups": 2,
    "ssm_state_size": 6,
    "n_routed_experts": 5,
    "moe_intermediate_size": 30,
    "moe_shared_expert_intermediate_size": 40,
}
JAMBA: Final[Config] = {**TEXT, "num_hidden_layers": 9, "num_experts": 4, "mamba_d_state": 6}
MAMBA2: Final[Config] = {**SMALL, "num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 6}

ON: Final = True
OFF: Final = False

# Class: model_type, the keys of a small model, and changes to try.
CLASSES: Final[dict[str, tuple[str, Config, tuple[Config, ...]]]] = {
    **{
        f"Bert{head}": ("bert", SMALL, ({"type_vocab_size": 3}, {"tie_word_embeddings": OFF}))
        for head in (
            "ForMaskedLM",
            "LMHeadModel",
            "Model",
            "ForPreTraining",
            "ForSequenceClassification",
            "ForTokenClassification",
            "ForQuestionAnswering",
        )
    },
    **{
        f"{prefix}{head}": (kind, SMALL, ({"id2label": {str(i): "" for i in range(5)}},))
        for prefix, kind in (("Roberta", "roberta"), ("XLMRoberta", "xlm-roberta"))
        for head in ("ForMaskedLM", "Model", "ForSequenceClassification")
    },
    **{
        f"DistilBert{head}": ("distilbert", {"dim": 64, "n_layers": 2, "n_heads": 4}, ())
        for head in ("ForMaskedLM", "Model", "ForSequenceClassification")
    },
    **{
        f"ViT{head}": ("vit", TOWER, ({"qkv_bias": OFF}, {"image_size": [28, 35]}))
        for head in ("ForImageClassification", "Model")
    },
    "CLIPModel": ("clip", {"text_config": SMALL, "vision_config": TOWER}, ({"projection_dim": 9},)),
    "SiglipModel": (
        "siglip",
        {"text_config": SMALL, "vision_config": TOWER},
        ({"vision_config": {**TOWER, "vision_use_head": OFF}},),
    ),
    **{
        f"{prefix}{head}": (
            kind,
            T5,
            ({"feed_forward_proj": "gated-silu"}, {"num_decoder_layers": 2}),
        )
        for prefix, kind in (("T5", "t5"), ("MT5", "mt5"), ("UMT5", "umt5"))
        for head in ("ForConditionalGeneration", "EncoderModel", "Model")
    },
    "BartForConditionalGeneration": ("bart", SIDES, ()),
    "MBartForConditionalGeneration": ("mbart", SIDES, ()),
    "WhisperForConditionalGeneration": (
        "whisper",
        SIDES,
        ({"num_mel_bins": 13}, {"max_source_positions": 30}, {"tie_word_embeddings": OFF}),
    ),
    "MambaForCausalLM": (
        "mamba",
        SMALL,
        ({"use_bias": ON}, {"use_conv_bias": OFF}, {"time_step_rank": 7}, {"expand": 3}),
    ),
    "FalconMambaForCausalLM": ("falcon_mamba", SMALL, ({"tie_word_embeddings": OFF},)),
    "Mamba2ForCausalLM": (
        "mamba2",
        MAMBA2,
        ({"use_bias": ON}, {"use_conv_bias": OFF}, {"tie_word_embeddings": ON}),
    ),
    "JambaForCausalLM": (
        "jamba",
        JAMBA,
        (
            {"num_experts": 1},
            {"mamba_conv_bias": OFF},
            {"mamba_proj_bias": ON},
            {"mamba_dt_rank": 9},
            {"attn_layer_period": 3, "attn_layer_offset": 0},
            {"expert_layer_period": 1, "expert_layer_offset": 0},
            {"tie_word_embeddings": ON},
        ),
    ),
    "BambaForCausalLM": (
        "bamba",
        {**TEXT, "mamba_n_heads": 8, "attn_layer_indices": [1]},
        ({"attention_bias": ON}, {"mlp_bias": ON}, {"mamba_proj_bias": ON}),
    ),
    "NemotronHForCausalLM": (
        "nemotron_h",
        {**NEMOTRON, "hybrid_override_pattern": "ME*-M"},
        (
            {"use_bias": ON},
            {"mlp_bias": ON},
            {"use_conv_bias": OFF},
            {"attention_bias": ON},
            {"moe_latent_size": 20},
            {"hybrid_override_pattern": "M-M*-"},
        ),
    ),
    "Qwen3NextForCausalLM": (
        "qwen3_next",
        DELTA_EXPERTS,
        (
            {"attention_bias": ON},
            {"full_attention_interval": 2},
            {"decoder_sparse_step": 2},
            {"mlp_only_layers": [1]},
        ),
    ),
    "Qwen3_5ForCausalLM": ("qwen3_5_text", DELTA, ({"tie_word_embeddings": ON},)),
    "Qwen3_5MoeForCausalLM": ("qwen3_5_moe_text", DELTA_EXPERTS, ({"attention_bias": ON},)),
    **{
        f"{prefix}ForConditionalGeneration": (
            kind,
            {
                "text_config": {**TEXT, "model_type": "llama"},
                "vision_config": {**TOWER, "model_type": "clip_vision_model"},
                "image_token_index": 5,
            },
            (
                {"multimodal_projector_bias": OFF},
                {"vision_feature_layer": [-2, -1]},
                {"tie_word_embeddings": ON},
                {"text_config": {**TEXT, "model_type": "mistral"}},
                {"text_config": {**TEXT, "model_type": "qwen2"}},
                {"vision_config": {**TOWER, "model_type": "siglip_vision_model"}},
                {"vision_config": {**TOWER, "model_type": "pixtral"}},
            ),
        )
        for prefix, kind in (
            ("Llava", "llava"),
            ("LlavaNext", "llava_next"),
            ("LlavaOnevision", "llava_onevision"),
        )
    },
    "Mistral3ForConditionalGeneration": (
        "mistral3",
        {
            "text_config": {**TEXT, "model_type": "mistral"},
            "vision_config": {**TOWER, "model_type": "pixtral"},
            "image_token_index": 5,
            "tie_word_embeddings": False,
        },
        ({"spatial_merge_size": 1}, {"multimodal_projector_bias": ON}),
    ),
    "Gemma3ForConditionalGeneration": (
        "gemma3",
        {
            "text_config": {**TEXT, "model_type": "gemma3_text"},
            "vision_config": {
                **TOWER,
                "model_type": "siglip_vision_model",
                "vision_use_head": False,
            },
            "mm_tokens_per_image": 4,
        },
        ({"text_config": {"num_hidden_layers": 2}}, {"tie_word_embeddings": OFF}),
    ),
    "PaliGemmaForConditionalGeneration": (
        "paligemma",
        {
            "text_config": {**TEXT, "model_type": "gemma"},
            "vision_config": {**TOWER, "model_type": "siglip_vision_model"},
            "image_token_index": 5,
        },
        ({"projection_dim": 9}, {"text_config": {**TEXT, "model_type": "gemma2"}}),
    ),
    "Llama4ForConditionalGeneration": (
        "llama4",
        {
            "text_config": {**TEXT, "intermediate_size_mlp": 44, "num_local_experts": 3},
            "vision_config": {**TOWER, "vision_output_dim": 20, "projector_input_dim": 24},
        },
        (
            {"text_config": {**TEXT, "interleave_moe_layer_step": 2, "num_local_experts": 3}},
            {"vision_config": {}},
        ),
    ),
    "MllamaForConditionalGeneration": (
        "mllama",
        {
            "text_config": {**SMALL, "num_key_value_heads": 2, "cross_attention_layers": [1]},
            "vision_config": {**TOWER, "attention_heads": 4, "num_global_layers": 2},
        },
        (
            {
                "vision_config": {
                    **TOWER,
                    "attention_heads": 2,
                    "vision_output_dim": 33,
                    "max_num_tiles": 2,
                    "supported_aspect_ratios": [[1, 1], [1, 2]],
                }
            },
        ),
    ),
    "Qwen2VLForConditionalGeneration": (
        "qwen2_vl",
        {
            **SMALL,
            "num_key_value_heads": 2,
            "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4},
        },
        ({"tie_word_embeddings": ON}, {"vision_config": {"mlp_ratio": 2, "depth": 1}}),
    ),
    "Qwen2_5_VLForConditionalGeneration": (
        "qwen2_5_vl",
        {**SMALL, "num_key_value_heads": 2, "vision_config": QWEN_TOWER},
        (
            {"vision_config": {**QWEN_TOWER, "spatial_merge_size": 1}},
            {"vision_config": {**QWEN_TOWER, "temporal_patch_size": 1}},
        ),
    ),
    **{
        f"{prefix}ForConditionalGeneration": (
            kind,
            {"text_config": text, "vision_config": QWEN_TOWER},
            ({"tie_word_embeddings": ON}, {"text_config": {**text, "head_dim": 24}}, *more),
        )
        for prefix, kind, text, more in (
            (
                "Qwen3VL",
                "qwen3_vl",
                TEXT,
                ({"vision_config": {**QWEN_TOWER, "deepstack_visual_indexes": [0]}},),
            ),
            ("Qwen3VLMoe", "qwen3_vl_moe", {**DELTA_EXPERTS, "mlp_only_layers": [1]}, ()),
            ("Qwen3_5", "qwen3_5", DELTA, ()),
            ("Qwen3_5Moe", "qwen3_5_moe", DELTA_EXPERTS, ()),
        )
    },
}


def variations() -> list[Any]:
    """Each class as it stands, and with each change."""
    return [
        pytest.param(
            {"model_type": kind, "architectures": [name], **base, **change},
            id=f"{name}-{','.join(change) or 'base'}-{index}",
        )
        for name, (kind, base, changes) in CLASSES.items()
        for index, change in enumerate(({}, *changes))
    ]


@pytest.mark.parametrize("config", variations())
def test_parameters_have_the_shapes_of_the_class(config: Config) -> None:
    """A matrix that is split, fused, convolved or transposed otherwise shows."""
    counted = workload(architecture_of(config, "file", "model"), Batch(sequence_length=8))
    shapes = Counter(p.shape for p in counted.parameters if p.tied_to is None)
    assert shapes == Counter(built_shapes(config))


def built_shapes(config: Config) -> list[tuple[int, ...]]:
    """Return the shapes that transformers registers, tied weights once."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    options = {key: value for key, value in config.items() if key != "model_type"}
    options = {key: dict(v) if isinstance(v, dict) else v for key, v in options.items()}
    built = transformers.AutoConfig.for_model(config["model_type"], **options)
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(built)
    model.tie_weights()
    return [tuple(parameter.shape) for parameter in model.parameters()]
