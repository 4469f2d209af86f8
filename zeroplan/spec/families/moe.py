"""Decoders with ordinary attention and a mixture of experts stored as transformers does.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture
from zeroplan.spec.families.common import causal_lm
from zeroplan.spec.families.experts import (
    head_norms,
    leading_dense,
    mixture,
    shared_width,
    sigmoid_router,
    sparse_decoder,
    whole_head_norms,
)
from zeroplan.spec.families.moe_layouts import grok
from zeroplan.spec.families.shape import Defaults, layer_norm, pre_norm, read_shape
from zeroplan.spec.keys import REQUIRED, Keys
from zeroplan.spec.moe import Router

__all__ = ["RULES"]


def mixtral(keys: Keys, name: str) -> Architecture:
    """MixtralConfig: every layer is sparse, and an expert is as wide as the file's MLP."""
    if keys.class_name.startswith("Grok1"):
        return grok(keys, name)
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=32_000,
            hidden=4096,
            width=14_336,
            layers=32,
            heads=32,
            kv_heads=8,
            positions=131_072,
        ),
    )
    window = keys.integer("sliding_window", default=None)
    shape = replace(shape, attention=replace(shape.attention, window=window))
    experts = replace(
        mixture(keys, shape, shape.mlp.width, experts=8, chosen=2), router=Router(wide_scores=True)
    )
    return sparse_decoder(keys, name, shape, experts)


def qwen2_moe(keys: Keys, name: str) -> Architecture:
    """Qwen2MoeConfig: QKV biases, and a shared expert behind a gate of its own."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=151_936,
            hidden=2048,
            width=5632,
            layers=24,
            heads=16,
            kv_heads=16,
            positions=32_768,
        ),
    )
    attention = replace(shape.attention, qkv_bias=keys.flag("qkv_bias", default=True))
    shape = replace(shape, attention=attention)
    width = keys.integer("moe_intermediate_size", default=1408)
    experts = replace(
        mixture(keys, shape, width, experts=60, chosen=4),
        shared_width=keys.integer("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
        router=_qwen_router(keys),
    )
    return sparse_decoder(keys, name, shape, experts, _qwen_sparse(keys))


def qwen3_moe(keys: Keys, name: str) -> Architecture:
    """Qwen3MoeConfig: query-key norms per head, no shared expert."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=151_936,
            hidden=2048,
            width=6144,
            layers=24,
            heads=32,
            kv_heads=4,
            positions=32_768,
        ),
    )
    bias = keys.flag("attention_bias", default=False)
    attention = replace(head_norms(shape.attention), qkv_bias=bias, output_bias=bias)
    shape = replace(shape, attention=attention)
    width = keys.integer("moe_intermediate_size", default=768)
    experts = replace(mixture(keys, shape, width, experts=128, chosen=8), router=_qwen_router(keys))
    return sparse_decoder(keys, name, shape, experts, _qwen_sparse(keys))


def _qwen_router(keys: Keys) -> Router:
    return Router(normalised=keys.flag("norm_topk_prob", default=False))


def _qwen_sparse(keys: Keys) -> Callable[[int], bool]:
    """Return which layers are sparse: every `decoder_sparse_step`-th but for `mlp_only_layers`."""
    step = keys.integer("decoder_sparse_step", default=1)
    dense = keys.integers("mlp_only_layers", default=())
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def olmoe(keys: Keys, name: str) -> Architecture:
    """OlmoeConfig: query-key norms over all heads together."""
    shape = read_shape(
        keys,
        Defaults(vocabulary=50_304, hidden=2048, width=2048, layers=16, heads=16, positions=4096),
    )
    bias = keys.flag("attention_bias", default=False)
    attention = replace(whole_head_norms(shape.attention), qkv_bias=bias, output_bias=bias)
    shape = replace(shape, attention=attention)
    experts = replace(
        mixture(keys, shape, shape.mlp.width, experts=64, chosen=8), router=_qwen_router(keys)
    )
    return sparse_decoder(keys, name, shape, experts)


def glm4_moe(keys: Keys, name: str) -> Architecture:
    """Glm4MoeConfig (GLM-4.5): leading dense layers, shared experts, optional query-key norms.

    The bias that corrects the router's choice is a buffer, and the layer that predicts further
    tokens is not in the class.
    """
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=151_552,
            hidden=4096,
            width=10_944,
            layers=46,
            heads=96,
            kv_heads=8,
            positions=131_072,
        ),
    )
    share = keys.number("partial_rotary_factor", default=0.5)
    attention = replace(
        shape.attention,
        qkv_bias=keys.flag("attention_bias", default=False),
        rotary_dim=int(shape.attention.head_dim * share),
    )
    if keys.flag("use_qk_norm", default=False):
        attention = head_norms(attention)
    width = keys.integer("moe_intermediate_size", default=1408)
    experts = replace(
        mixture(keys, shape, width, experts=128, chosen=8),
        shared_width=shared_width(keys, width),
        router=sigmoid_router(keys, normalised=True),
    )
    shape = replace(shape, attention=attention)
    return sparse_decoder(keys, name, shape, experts, leading_dense(keys, shape.layers, 1))


def dots1(keys: Keys, name: str) -> Architecture:
    """Dots1Config (dots.llm1): query-key norms per head, leading dense layers, shared experts."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=152_064,
            hidden=4608,
            width=10_944,
            layers=62,
            heads=32,
            kv_heads=32,
            positions=2048,
        ),
    )
    bias = keys.flag("attention_bias", default=False)
    attention = replace(head_norms(shape.attention), qkv_bias=bias, output_bias=bias)
    width = keys.integer("moe_intermediate_size", default=1408)
    experts = replace(
        mixture(keys, shape, width, experts=REQUIRED, chosen=REQUIRED),
        shared_width=shared_width(keys, width, REQUIRED),
        router=sigmoid_router(keys, normalised=False),
    )
    shape = replace(shape, attention=attention)
    return sparse_decoder(keys, name, shape, experts, leading_dense(keys, shape.layers, 0))


def minimax_m2(keys: Keys, name: str) -> Architecture:
    """MiniMaxM2Config: query-key norms over all heads together, experts only."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=200_064,
            hidden=3072,
            width=1536,
            layers=62,
            heads=48,
            kv_heads=8,
            head_dim=128,
            positions=196_608,
        ),
    )
    attention = whole_head_norms(shape.attention)
    turned = keys.integer("rotary_dim", default=attention.head_dim)
    shape = replace(shape, attention=replace(attention, rotary_dim=turned))
    experts = replace(
        mixture(keys, shape, shape.mlp.width, experts=256, chosen=8),
        router=Router(scoring="sigmoid", wide_scores=True),
    )
    return sparse_decoder(keys, name, shape, experts)


def phimoe(keys: Keys, name: str) -> Architecture:
    """PhimoeConfig (Phi-3.5-MoE): LayerNorms, and biases where the file asks for them."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=32_064,
            hidden=4096,
            width=6400,
            layers=32,
            heads=32,
            kv_heads=8,
            positions=131_072,
        ),
    )
    bias = keys.flag("attention_bias", default=False)
    window = keys.integer("sliding_window", default=None)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias, window=window)
    norm = layer_norm(shape.hidden)
    experts = mixture(keys, shape, shape.mlp.width, experts=16, chosen=2)
    return causal_lm(
        keys,
        name,
        hidden=shape.hidden,
        blocks=shape.layers * (pre_norm(norm, attention, experts),),
        final_norm=norm,
        tied=shape.tied,
        head_bias=keys.flag("lm_head_bias", default=False),
        max_positions=shape.positions,
    )


def granitemoe(keys: Keys, name: str) -> Architecture:
    """GraniteMoeConfig: Mixtral with optional attention biases."""
    shape = read_shape(
        keys,
        Defaults(vocabulary=32_000, hidden=4096, width=11_008, layers=32, heads=32, positions=2048),
    )
    bias = keys.flag("attention_bias", default=False)
    shape = replace(shape, attention=replace(shape.attention, qkv_bias=bias, output_bias=bias))
    experts = replace(
        mixture(keys, shape, shape.mlp.width, experts=8, chosen=2),
        router=Router(scoring="chosen-fp32"),
    )
    return sparse_decoder(keys, name, shape, experts)


RULES: Final = {
    "dots1": dots1,
    "glm4_moe": glm4_moe,
    "granitemoe": granitemoe,
    "minimax_m2": minimax_m2,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "phimoe": phimoe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
}
