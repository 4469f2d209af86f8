"""Dense decoders: every switch of every family against transformers 5.24 on the meta device."""

from collections import Counter
from typing import Any, Final

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.architecture import Architecture, Attention
from zeroplan.spec.models import architecture_of
from zeroplan.workload.batch import Batch
from zeroplan.workload.count import count_model
from zeroplan.workload.model import workload

SMALL: Final = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT: Final = {
    "vocab_size": 96,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 8,
    "n_positions": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
NEOX: Final = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
OPT: Final = {key: value for key, value in NEOX.items() if key != "intermediate_size"} | {
    "ffn_dim": 80
}
FALCON: Final = {key: value for key, value in OPT.items() if key != "ffn_dim"}
ATTENTION_BIAS: Final = ({"attention_bias": True}, {"attention_bias": False})
TIES: Final = ({"tie_word_embeddings": True}, {"tie_word_embeddings": False})
HEADS: Final = (
    {"num_key_value_heads": 8},
    {"num_key_value_heads": 1},
    {"num_key_value_heads": None},
)
WIDE: Final = ({"head_dim": 24},)
SHAPES: Final[tuple[dict[str, Any], ...]] = (
    {},
    *TIES,
    *HEADS,
    {"num_hidden_layers": 1},
    {"hidden_act": "relu"},
)

FAMILIES: Final[dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]]] = {
    "llama": (SMALL, (*SHAPES, *WIDE, *ATTENTION_BIAS, {"mlp_bias": True})),
    "granite": (SMALL, (*SHAPES, *ATTENTION_BIAS, {"mlp_bias": True})),
    "smollm3": (SMALL, (*SHAPES, *ATTENTION_BIAS, {"no_rope_layers": [1, 0, 1]})),
    "mistral": (
        SMALL,
        ({}, *TIES, *HEADS[:2], *WIDE, {"sliding_window": None}, {"sliding_window": 8}),
    ),
    "qwen2": (SMALL, (*SHAPES, {"use_sliding_window": True, "max_window_layers": 1})),
    "qwen3": (SMALL, (*SHAPES, *WIDE, *ATTENTION_BIAS)),
    "phi3": (SMALL, (*SHAPES, {"partial_rotary_factor": 0.5})),
    "gemma": (SMALL, ({}, *TIES, *HEADS[:2], *WIDE, *ATTENTION_BIAS)),
    "gemma2": (SMALL, ({}, *TIES, *HEADS[:2], *WIDE, *ATTENTION_BIAS)),
    "gemma3_text": (SMALL, ({}, *TIES, *HEADS[:2], *WIDE, *ATTENTION_BIAS)),
    "olmo": (SMALL, (*SHAPES, *ATTENTION_BIAS, {"clip_qkv": 8.0})),
    "olmo2": (SMALL, (*SHAPES, *ATTENTION_BIAS)),
    "olmo3": (SMALL, (*SHAPES, *ATTENTION_BIAS)),
    "cohere": (SMALL, (*SHAPES, *ATTENTION_BIAS, {"use_qk_norm": True})),
    "cohere2": (SMALL, (*SHAPES, *ATTENTION_BIAS)),
    "starcoder2": (SMALL, ({}, *TIES, *HEADS[:2], {"use_bias": False})),
    "nemotron": (
        SMALL,
        ({}, *TIES, *HEADS[:2], *WIDE, *ATTENTION_BIAS, {"mlp_bias": True}),
    ),
    "gpt2": (GPT, ({}, *TIES, {"n_inner": 96})),
    "gpt_bigcode": (GPT, ({}, *TIES, {"n_inner": 96}, {"multi_query": False})),
    "openai-gpt": (GPT, ({}, *TIES)),
    "codegen": (GPT, ({}, {"n_inner": 96}, {"rotary_dim": 4})),
    "gptj": (GPT, ({}, {"n_inner": 96}, {"rotary_dim": 4})),
    "gpt_neo": (
        {
            "vocab_size": 96,
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 8,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 32,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        ({}, *TIES, {"intermediate_size": 96}),
    ),
    "gpt_neox": (
        NEOX,
        ({}, *TIES, *ATTENTION_BIAS, {"use_parallel_residual": False}, {"rotary_pct": 1.0}),
    ),
    "opt": (
        OPT,
        (
            {},
            *TIES,
            {"word_embed_proj_dim": 32},
            {"word_embed_proj_dim": 32, "do_layer_norm_before": False},
            {"enable_bias": False},
            {"layer_norm_elementwise_affine": False},
            {"_remove_final_layer_norm": True},
        ),
    ),
    "bloom": (
        {"vocab_size": 96, "hidden_size": 64, "n_layer": 3, "n_head": 8},
        ({}, *TIES, {"n_embed": 32}),
    ),
    "falcon": (
        FALCON,
        (
            {},
            *TIES,
            {"num_kv_heads": 8},
            {"multi_query": False},
            {"multi_query": False, "num_kv_heads": 2},
            {"new_decoder_architecture": True, "num_kv_heads": 2},
            {"new_decoder_architecture": True},
            {
                "new_decoder_architecture": True,
                "num_kv_heads": 2,
                "num_ln_in_parallel_attn": 1,
            },
            {"parallel_attn": False, "multi_query": False, "alibi": True, "bias": True},
            {"ffn_hidden_size": 96},
        ),
    ),
    "mpt": (
        {"vocab_size": 96, "d_model": 64, "n_layers": 3, "n_heads": 8, "max_seq_len": 32},
        ({}, *TIES, {"attn_config": {"alibi": True}}),
    ),
}


def variations() -> list[Any]:
    """Every switch of every family, each turned alone."""
    return [
        pytest.param({"model_type": family} | base | change, id=f"{family}-{change}")
        for family, (base, changes) in FAMILIES.items()
        for change in changes
    ]


@pytest.mark.torch
@pytest.mark.parametrize("config", variations())
def test_every_parameter_has_the_shape_that_the_class_gives_it(config: dict[str, Any]) -> None:
    assert _our_shapes(config) == _class_shapes(config)


@pytest.mark.parametrize("config", variations())
def test_a_tied_head_adds_nothing_and_the_parts_add_up(config: dict[str, Any]) -> None:
    count = count_model(architecture_of(config, "test", "test"), 32)
    parts = ("embedding", "head", "norm", "attention", "mlp", "expert", "router", "mixer", "other")
    assert sum(getattr(count, f"{part}_parameters") for part in parts) == count.total_parameters
    assert count.head_parameters == 0 or not count.tied


def test_the_first_qwen_counts_its_width_twice_and_its_biases_never() -> None:
    """1,836,828,672 of Qwen-1.8B follow from its published file (modeling_qwen.py)."""
    config = {
        "model_type": "qwen",
        "architectures": ["QWenLMHeadModel"],
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "kv_channels": 128,
        "no_bias": True,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "seq_length": 8192,
        "tie_word_embeddings": False,
        "vocab_size": 151_936,
    }
    assert _total(config) == 1_836_828_672


def test_baichuan_packs_queries_keys_and_values() -> None:
    """7,505,973,248 of Baichuan2-7B follow from its published file (modeling_baichuan.py)."""
    config = {
        "model_type": "baichuan",
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "tie_word_embeddings": False,
        "vocab_size": 125_696,
    }
    assert _total(config) == 7_505_973_248
    del config["max_position_embeddings"]
    assert _attentions(architecture_of(config, "test", "test"))[0].position == "alibi"


def test_mimo_is_counted_without_its_layer_for_multi_token_prediction() -> None:
    """7,622,619,136 of MiMo-7B follow from its published file (modeling_mimo.py)."""
    config = {
        "model_type": "mimo",
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 11_008,
        "vocab_size": 151_680,
        "attention_bias": True,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    }
    assert _total(config) == 7_622_619_136


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"model_type": "RefinedWeb", "n_head_kv": 2, "bias": False},
            {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": False},
        ),
        ({"model_type": "RefinedWebModel", "multi_query": True}, {"multi_query": True}),
        (
            {"model_type": "RefinedWebModel", "multi_query": False, "parallel_attn": False},
            {"multi_query": False, "parallel_attn": False},
        ),
    ],
)
def test_falcons_old_names_mean_the_same_model(old: dict[str, Any], new: dict[str, Any]) -> None:
    names = {"vocab_size": 96, "n_embed": 64, "n_layer": 3, "n_head": 8}
    usual = {"model_type": "falcon"} | FALCON | new
    assert _our_shapes(names | old) == _our_shapes(usual)


@pytest.mark.parametrize(
    ("family", "change", "windows"),
    [
        ("mistral", {}, [4096, 4096, 4096]),
        ("mistral", {"sliding_window": None}, [None, None, None]),
        ("qwen2", {"sliding_window": 8, "max_window_layers": 1}, [None, None, None]),
        (
            "qwen2",
            {"sliding_window": 8, "max_window_layers": 1, "use_sliding_window": True},
            [None, 8, 8],
        ),
        ("gemma2", {"sliding_window": 8}, [8, None, 8]),
        ("gemma3_text", {"sliding_window": 8, "sliding_window_pattern": 2}, [8, None, 8]),
        ("olmo3", {"sliding_window": 8}, [8, 8, 8]),
        (
            "cohere2",
            {
                "sliding_window": 8,
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            },
            [None, 8, None],
        ),
    ],
)
def test_windows_slide_where_the_file_or_the_class_says(
    family: str, change: dict[str, Any], windows: list[int | None]
) -> None:
    architecture = architecture_of({"model_type": family} | SMALL | change, "test", "test")
    assert [part.window for part in _attentions(architecture)] == windows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 3}, "'num_key_value_heads': value 3; it divides the 8 heads"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "divides the hidden size 64"),
        ({"layer_types": ["full_attention"]}, "one entry for each of the 3 layers"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        architecture_of({"model_type": "olmo3"} | SMALL | change, "test", "test")


def _our_shapes(config: dict[str, Any]) -> Counter[tuple[int, ...]]:
    work = workload(architecture_of(config, "test", "test"), Batch())
    return Counter(p.shape for p in work.parameters if p.tied_to is None)


def _class_shapes(config: dict[str, Any]) -> Counter[tuple[int, ...]]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    options = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **options)
        )
    return Counter(tuple(parameter.shape) for parameter in model.parameters())


def _total(config: dict[str, Any]) -> int:
    return count_model(architecture_of(config, "test", "test"), 32).total_parameters


def _attentions(architecture: Architecture) -> list[Attention]:
    (stack,) = architecture.stacks
    return [
        part.component
        for block in stack.blocks
        for part in block.sublayers
        if isinstance(part.component, Attention)
    ]
