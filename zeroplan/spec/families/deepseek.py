"""Decoders with latent attention: the DeepSeek line and what follows its configuration.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
The bias that corrects a router's choice is a buffer, and the layers that predict further tokens
(`num_nextn_predict_layers`) are not in the classes: neither is counted.
"""

from typing import Final

from zeroplan.records import dataclass, replace
from zeroplan.spec.architecture import Architecture, Component
from zeroplan.spec.families.experts import (
    leading_dense,
    mixture,
    per_layer,
    shared_width,
    sigmoid_router,
)
from zeroplan.spec.families.shape import (
    Defaults,
    Shape,
    decoder,
    pre_norm,
    read_shape,
    rms_norm,
)
from zeroplan.spec.keys import Keys
from zeroplan.spec.latent_attention import Indexer, LatentAttention
from zeroplan.spec.moe import Router

__all__ = ["RULES"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """A class's defaults for latent attention."""

    query_rank: int = 1536
    kv_rank: int = 512
    nope: int = 128
    rope: int = 64
    value: int | None = 128
    """None: hidden / heads. [elements]"""
    index_heads: int | None = None
    """Heads of the indexer; None where the class has none. [count]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse:
    """A class's defaults for its experts."""

    experts: int
    chosen: int
    width: int
    shared: int = 1
    dense: int = 0
    """Leading layers without experts. [count]"""
    sigmoid: bool = True
    """Scores are sigmoids (V3) instead of a softmax that is not normalised (V2)."""


V2_ROUTER: Final = Router(wide=True, normalised=False, scaled=True, wide_scores=True)
V2_SPARSE: Final = Sparse(experts=64, chosen=6, width=1407, shared=2, sigmoid=False)


def latent_decoder(
    keys: Keys, name: str, defaults: Defaults, latent: Latent, sparse: Sparse | None
) -> Architecture:
    """Frame blocks of latent attention and, behind the leading dense ones, of experts."""
    shape = read_shape(keys, defaults)
    shape = replace(shape, mlp=replace(shape.mlp, bias=keys.flag("mlp_bias", default=False)))
    attention = _attention(keys, shape, latent)
    if latent.index_heads is None:
        attentions = shape.layers * (attention,)
    else:
        indexed = replace(attention, indexer=_indexer(keys, latent.index_heads))
        shares = _indexed(keys, shape.layers)
        attentions = tuple(indexed if own else attention for own in shares)
    feed_forward = _feed_forward(keys, shape, sparse)
    norm = rms_norm(shape.hidden)
    blocks = tuple(map(pre_norm, shape.layers * (norm,), attentions, feed_forward))
    return decoder(keys, name, shape, blocks, norm)


def _attention(keys: Keys, shape: Shape, default: Latent) -> LatentAttention:
    """Read the ranks and widths; an explicit null for `q_lora_rank` is one plain projection."""
    rank: int | None = keys.integer("q_lora_rank", default=default.query_rank)
    if keys.mentions("q_lora_rank") and not keys.has("q_lora_rank"):
        rank = None
    heads = shape.attention.heads
    return LatentAttention(
        hidden=shape.hidden,
        heads=heads,
        query_rank=rank,
        kv_rank=keys.integer("kv_lora_rank", default=default.kv_rank),
        nope_dim=keys.integer("qk_nope_head_dim", default=default.nope),
        rope_dim=keys.integer("qk_rope_head_dim", default=default.rope),
        value_dim=keys.integer("v_head_dim", default=default.value or shape.hidden // heads),
        bias=keys.flag("attention_bias", default=False),
    )


def _indexer(keys: Keys, heads: int) -> Indexer:
    return Indexer(
        heads=keys.integer("index_n_heads", default=heads),
        head_dim=keys.integer("index_head_dim", default=128),
        keys=keys.integer("index_topk", default=2048),
    )


def _indexed(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Return which layers choose keys themselves; the others reuse the last choice.

    `GlmMoeDsaConfig.__post_init__`: a list, a pattern of F and S, or one in so many layers.
    """
    pattern = keys.text("index_topk_pattern", default=None)
    if pattern is not None:
        each = per_layer(keys, "index_topk_pattern", pattern, layers)
        return tuple(kind == "F" for kind in each)
    kinds = keys.texts("indexer_types", default=None)
    if kinds is not None:
        return tuple(kind == "full" for kind in per_layer(keys, "indexer_types", kinds, layers))
    every = keys.integer("index_topk_freq", default=1)
    offset = keys.integer("index_skip_topk_offset", default=2, minimum=0)
    return tuple(max(layer - offset + 1, 0) % every == 0 for layer in range(layers))


def _feed_forward(keys: Keys, shape: Shape, default: Sparse | None) -> tuple[Component, ...]:
    if default is None:
        return shape.layers * (shape.mlp,)
    width = keys.integer("moe_intermediate_size", default=default.width)
    experts = replace(
        mixture(keys, shape, width, experts=default.experts, chosen=default.chosen),
        shared_width=shared_width(keys, width, default.shared),
        shared_bias=shape.mlp.bias,
        router=sigmoid_router(keys, normalised=True) if default.sigmoid else V2_ROUTER,
    )
    sparse = leading_dense(keys, shape.layers, default.dense)
    return tuple(experts if sparse(layer) else shape.mlp for layer in range(shape.layers))


def deepseek(keys: Keys, name: str) -> Architecture:
    """DeepseekConfig of the published code (DeepSeekMoE 16B): ordinary attention."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=102_400, hidden=4096, width=11_008, layers=30, heads=32, positions=2048
        ),
    )
    bias = keys.flag("attention_bias", default=False)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    feed_forward = _feed_forward(keys, shape, V2_SPARSE)
    norm = rms_norm(shape.hidden)
    blocks = tuple(pre_norm(norm, attention, part) for part in feed_forward)
    return decoder(keys, name, shape, blocks, norm)


def deepseek_v2(keys: Keys, name: str) -> Architecture:
    """DeepseekV2Config."""
    defaults = Defaults(
        vocabulary=102_400,
        hidden=4096,
        width=11_008,
        layers=32,
        heads=32,
        head_dim=64,
        positions=2048,
    )
    return latent_decoder(keys, name, defaults, Latent(), V2_SPARSE)


V3: Final = Defaults(
    vocabulary=129_280,
    hidden=7168,
    width=18_432,
    layers=61,
    heads=128,
    head_dim=64,
    positions=4096,
)
V3_SPARSE: Final = Sparse(experts=256, chosen=8, width=2048, dense=3)


def deepseek_v3(keys: Keys, name: str) -> Architecture:
    """DeepseekV3Config; Kimi K2 and Moonlight state other sizes under the same names."""
    return latent_decoder(keys, name, V3, Latent(), V3_SPARSE)


def deepseek_v32(keys: Keys, name: str) -> Architecture:
    """DeepseekV32Config: an indexer in every layer."""
    defaults = replace(V3, positions=163_840)
    return latent_decoder(keys, name, defaults, Latent(index_heads=64), V3_SPARSE)


def glm_moe_dsa(keys: Keys, name: str) -> Architecture:
    """GlmMoeDsaConfig (GLM-5): V3.2 with wider heads, whose indexers some layers may share."""
    defaults = Defaults(
        vocabulary=154_880,
        hidden=6144,
        width=12_288,
        layers=78,
        heads=64,
        head_dim=64,
        positions=202_752,
    )
    latent = Latent(query_rank=2048, nope=192, value=256, index_heads=32)
    return latent_decoder(keys, name, defaults, latent, V3_SPARSE)


def glm4_moe_lite(keys: Keys, name: str) -> Architecture:
    """Glm4MoeLiteConfig (GLM-4.7-Flash)."""
    defaults = Defaults(
        vocabulary=154_880,
        hidden=2048,
        width=10_240,
        layers=47,
        heads=20,
        head_dim=64,
        positions=202_752,
    )
    latent = Latent(query_rank=768, nope=192, value=256)
    sparse = Sparse(experts=64, chosen=4, width=1536, dense=1)
    return latent_decoder(keys, name, defaults, latent, sparse)


def mistral4(keys: Keys, name: str) -> Architecture:
    """Mistral4Config."""
    defaults = Defaults(
        vocabulary=131_072,
        hidden=4096,
        width=12_288,
        layers=36,
        heads=32,
        head_dim=128,
        positions=1_048_576,
    )
    latent = Latent(query_rank=1024, kv_rank=256, nope=64)
    sparse = Sparse(experts=128, chosen=4, width=2048)
    return latent_decoder(keys, name, defaults, latent, sparse)


def minicpm3(keys: Keys, name: str) -> Architecture:
    """MiniCPM3Config: latent attention in a dense decoder."""
    defaults = Defaults(
        vocabulary=73_448,
        hidden=2560,
        width=6400,
        layers=62,
        heads=40,
        head_dim=32,
        positions=32_768,
        tied=True,
    )
    latent = Latent(query_rank=768, kv_rank=256, nope=64, rope=32, value=None)
    return latent_decoder(keys, name, defaults, latent, None)


RULES: Final = {
    "deepseek": deepseek,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": deepseek_v32,
    "glm4_moe_lite": glm4_moe_lite,
    "glm_moe_dsa": glm_moe_dsa,
    "kimi_k2": deepseek_v3,
    "minicpm3": minicpm3,
    "mistral4": mistral4,
}
