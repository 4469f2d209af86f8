"""Mixtures of experts, latent attention and further decoders against transformers 5.24.

Every family is built small on the meta device, once as its class's switches stand and once for each
switch turned; the parameters' shapes must be the same, one for one.
"""

from collections import Counter
from itertools import chain
from typing import Any, Final

import pytest

from zeroplan.spec.models import architecture_of
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import workload

pytestmark = pytest.mark.torch

SMALL: Final[dict[str, Any]] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS: Final[dict[str, Any]] = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT: Final[dict[str, Any]] = {
    **SMALL,
    **EXPERTS,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 12,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_group": 2,
    "topk_group": 1,
}
TIED: Final[dict[str, tuple[Any, ...]]] = {"tie_word_embeddings": (True, False)}
ATTENTION_BIAS: Final[dict[str, tuple[Any, ...]]] = {**TIED, "attention_bias": (True, False)}
LATENT_SWITCHES: Final[dict[str, tuple[Any, ...]]] = {
    **ATTENTION_BIAS,
    "n_shared_experts": (2,),
    "first_k_dense_replace": (0, 3, 9),
    "n_routed_experts": (4,),
    "num_attention_heads": (8,),
}

# model_type: the keys of a small model, and for some keys the values to try.
FAMILIES: Final[dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]]] = {
    "arcee": (SMALL, {**ATTENTION_BIAS, "mlp_bias": (True,), "head_dim": (16, None)}),
    "dbrx": (
        {
            "vocab_size": 96,
            "d_model": 32,
            "n_heads": 4,
            "n_layers": 3,
            "max_seq_len": 64,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4},
            "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
        },
        {"n_heads": (8,), "n_layers": (1,)},
    ),
    "deepseek_v2": (LATENT, {**LATENT_SWITCHES, "q_lora_rank": (None,), "mlp_bias": (True,)}),
    "deepseek_v3": (LATENT, {**LATENT_SWITCHES, "q_lora_rank": (None,)}),
    "deepseek_v32": (
        {**LATENT, "index_n_heads": 2, "index_head_dim": 8},
        {
            **LATENT_SWITCHES,
            "index_n_heads": (4,),
            "index_head_dim": (16,),
            "mlp_layer_types": (["sparse", "dense", "sparse", "dense"],),
        },
    ),
    "dots1": (
        {**SMALL, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1},
        {**ATTENTION_BIAS, "first_k_dense_replace": (2,), "n_shared_experts": (2,)},
    ),
    "ernie4_5": (SMALL, {**TIED, "use_bias": (True,), "head_dim": (16, None)}),
    "ernie4_5_moe": (
        {**SMALL, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 24},
        {
            **TIED,
            "moe_num_shared_experts": (0, 1),
            "moe_layer_start_index": (0, 2),
            "moe_layer_end_index": (1, -1),
            "moe_layer_interval": (2,),
        },
    ),
    "exaone4": (
        SMALL,
        {**TIED, "head_dim": (16,), "sliding_window": (8,), "sliding_window_pattern": (2,)},
    ),
    "glm": (SMALL, {**ATTENTION_BIAS, "head_dim": (16,), "num_key_value_heads": (1, 4)}),
    "glm4": (SMALL, {**ATTENTION_BIAS, "head_dim": (16,), "num_key_value_heads": (1, 4)}),
    "glm4_moe": (
        {**SMALL, **EXPERTS, "n_routed_experts": 8},
        {
            **ATTENTION_BIAS,
            "use_qk_norm": (True,),
            "head_dim": (16,),
            "n_shared_experts": (2,),
            "first_k_dense_replace": (0, 2),
        },
    ),
    "glm4_moe_lite": (
        LATENT,
        {**ATTENTION_BIAS, "mlp_layer_types": (["dense", "dense", "sparse", "sparse"],)},
    ),
    "glm_moe_dsa": (
        {**LATENT, "index_n_heads": 2, "index_head_dim": 8},
        {
            **LATENT_SWITCHES,
            "index_topk_freq": (2, 4),
            "index_topk_pattern": ("FSSF",),
            "indexer_types": (["full", "shared", "shared", "full"],),
        },
    ),
    "gpt_oss": (
        {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
        {**ATTENTION_BIAS, "head_dim": (16,), "layer_types": (["full_attention"] * 4,)},
    ),
    "granitemoe": ({**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2}, ATTENTION_BIAS),
    "helium": ({**SMALL, "head_dim": 8}, {**ATTENTION_BIAS, "mlp_bias": (True,)}),
    "hunyuan_v1_dense": ({**SMALL, "head_dim": 8}, {**ATTENTION_BIAS, "head_dim": (16,)}),
    "llama4_text": (
        {**SMALL, "intermediate_size_mlp": 40, "num_local_experts": 8, "head_dim": 8},
        {
            **ATTENTION_BIAS,
            "interleave_moe_layer_step": (2, 3),
            "moe_layers": ([0, 3],),
            "use_qk_norm": (False,),
            "no_rope_layers": ([1, 0, 1, 1],),
        },
    ),
    "minicpm3": (
        {key: value for key, value in LATENT.items() if "expert" not in key},
        {**ATTENTION_BIAS, "mlp_bias": (True,), "q_lora_rank": (None,), "v_head_dim": (None,)},
    ),
    "minimax_m2": (
        {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 8},
        {**TIED, "num_key_value_heads": (1, 4), "head_dim": (16,)},
    ),
    "ministral3": (SMALL, {**TIED, "head_dim": (16,), "sliding_window": (8,)}),
    "mistral4": (LATENT, LATENT_SWITCHES),
    "mixtral": (
        {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
        {**TIED, "head_dim": (16, None), "sliding_window": (8,), "num_key_value_heads": (1, 4)},
    ),
    "olmoe": (
        {**SMALL, "num_experts": 8, "num_experts_per_tok": 2},
        {**ATTENTION_BIAS, "num_key_value_heads": (1, 4, None)},
    ),
    "phi": (SMALL, {**TIED, "qk_layernorm": (True,), "num_key_value_heads": (1, None)}),
    "phimoe": (
        {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
        {**ATTENTION_BIAS, "lm_head_bias": (True,)},
    ),
    "qwen2_moe": (
        {**SMALL, **EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 40},
        {
            **TIED,
            "qkv_bias": (True, False),
            "decoder_sparse_step": (2,),
            "mlp_only_layers": ([0, 3],),
            "shared_expert_intermediate_size": (56,),
        },
    ),
    "qwen3_moe": (
        {**SMALL, **EXPERTS, "num_experts": 8},
        {
            **ATTENTION_BIAS,
            "head_dim": (16,),
            "decoder_sparse_step": (2,),
            "mlp_only_layers": ([1], [0, 3]),
        },
    ),
    "seed_oss": (
        {**SMALL, "head_dim": 8},
        {**ATTENTION_BIAS, "attention_out_bias": (True,), "mlp_bias": (True,)},
    ),
    "stablelm": (
        SMALL,
        {
            **TIED,
            "use_qkv_bias": (True,),
            "use_parallel_residual": (True,),
            "num_key_value_heads": (1, 4),
        },
    ),
}


def variations() -> list[Any]:
    """Each family as it stands, with each switch turned, and with all turned to their last."""
    cases = []
    for model_type, (base, switches) in FAMILIES.items():
        turned = [{key: value} for key, values in switches.items() for value in values]
        exclusive = {"index_topk_pattern", "indexer_types"}
        last = {key: values[-1] for key, values in switches.items() if key not in exclusive}
        for change in chain(({},), turned, (last,)):
            label = ",".join(f"{key}={value}" for key, value in change.items()) or "base"
            keys = {"model_type": model_type, **base, **change}
            cases.append(pytest.param(keys, id=f"{model_type}-{label[:60]}"))
    return cases


@pytest.mark.parametrize("keys", variations())
def test_parameters_have_the_shapes_of_the_class(keys: dict[str, Any]) -> None:
    """A matrix that is split, fused or transposed otherwise shows."""
    assert counted_shapes(keys) == Counter(built_shapes(keys))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_stablelm_norms_every_head_by_itself(kv_heads: int) -> None:
    """The class holds one vector per head, the description one matrix for all heads."""
    keys = {
        "model_type": "stablelm",
        **SMALL,
        "num_key_value_heads": kv_heads,
        "qk_layernorm": True,
    }
    head_by_head: Counter[tuple[int, ...]] = Counter()
    for shape, count in counted_shapes(keys).items():
        per_head = shape[1:] == (8,)
        head_by_head[(8,) if per_head else shape] += count * shape[0] if per_head else count
    assert head_by_head == Counter(built_shapes(keys))


def counted_shapes(keys: dict[str, Any]) -> Counter[tuple[int, ...]]:
    """Return how often each shape is counted, tied weights once."""
    counted = workload(architecture_of(keys, "file", "model"), Batch(sequence_length=8))
    return Counter(p.shape for p in counted.parameters if p.tied_to is None)


def built_shapes(keys: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the shapes that transformers registers, tied weights once."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    options = {key: value for key, value in keys.items() if key != "model_type"}
    options["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    config = transformers.AutoConfig.for_model(keys["model_type"], **options)
    # Mistral 4 is a text model that only its multimodal wrapper registers.
    name = type(config).__name__.removesuffix("Config").removesuffix("Text")
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    return [tuple(parameter.shape) for parameter in model.parameters()]
