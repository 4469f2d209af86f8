"""Decoders whose experts are stored, or whose blocks are wired, in a way of their own.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Norm,
    Sublayer,
    Weights,
)
from zeroplan.spec.families.common import MAX_LAYERS, causal_lm
from zeroplan.spec.families.experts import mixture, per_layer, shared_width
from zeroplan.spec.families.shape import (
    Defaults,
    decoder,
    layer_norm,
    pre_norm,
    read_shape,
    rms_norm,
)
from zeroplan.spec.keys import Keys
from zeroplan.spec.moe import MixtureOfExperts, Router

__all__ = ["RULES", "grok", "llama4_text"]


def gpt_oss(keys: Keys, name: str) -> Architecture:
    """GptOssConfig: sinks, biases everywhere, every other layer sees a window."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=201_088,
            hidden=2880,
            width=2880,
            layers=36,
            heads=64,
            kv_heads=8,
            head_dim=64,
            positions=131_072,
        ),
    )
    bias = keys.flag("attention_bias", default=True)
    full = replace(shape.attention, qkv_bias=bias, output_bias=bias, sinks=True)
    narrow = replace(full, window=keys.integer("sliding_window", default=128))
    alternate = shape.layers * ("sliding_attention", "full_attention")
    kinds = keys.texts("layer_types", default=alternate)
    experts = replace(
        mixture(keys, shape, shape.mlp.width, experts=128, chosen=4),
        bias=True,
        router=Router(scoring="chosen", bias=True),
        transposed=True,
    )
    norm = rms_norm(shape.hidden)
    blocks = tuple(
        pre_norm(norm, narrow if kind == "sliding_attention" else full, experts)
        for kind in per_layer(keys, "layer_types", kinds, shape.layers)
    )
    return decoder(keys, name, shape, blocks, norm)


def grok(keys: Keys, name: str) -> Architecture:
    """Grok1Config of the published PyTorch port (hpcai-tech/grok-1): norms on both sides."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=131_072,
            hidden=6144,
            width=32_768,
            layers=64,
            heads=48,
            kv_heads=8,
            positions=8192,
            activation="gelu",
            tied=True,
        ),
    )
    experts = mixture(keys, shape, shape.mlp.width, experts=8, chosen=2)
    experts = replace(experts, storage="modules")
    norm = rms_norm(shape.hidden)
    parts = (("attention", shape.attention), ("mlp", experts))
    block = Block(
        sublayers=tuple(
            Sublayer(name=part, component=component, norm=norm, post_norm=norm)
            for part, component in parts
        )
    )
    return decoder(keys, name, shape, shape.layers * (block,), norm)


def dbrx(keys: Keys, name: str) -> Architecture:
    """DbrxConfig: nested configurations, one fused QKV matrix, experts laid end to end."""
    hidden = keys.size("d_model", "hidden_size", default=2048)
    heads = keys.size("n_heads", "num_attention_heads", default=16)
    if hidden % heads:
        raise keys.fault("n_heads", heads, f"it divides the hidden size {hidden}")
    inner = keys.nested("ffn_config")
    activation = inner.nested("ffn_act_fn").text("name", default="silu")
    count = inner.integer("moe_num_experts", default=4)
    experts = MixtureOfExperts(
        hidden=hidden,
        experts=count,
        experts_per_token=inner.integer("moe_top_k", default=1, maximum=count),
        width=inner.integer("ffn_hidden_size", default=3584),
        activation=activation,
        storage="flat",
    )
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=keys.nested("attn_config").integer("kv_n_heads", default=1, maximum=heads),
        head_dim=hidden // heads,
        fused_qkv=True,
    )
    norm = layer_norm(hidden, bias=False)
    depth = keys.size("n_layers", "num_hidden_layers", default=24, maximum=MAX_LAYERS)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=depth * (pre_norm(norm, attention, experts),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=False),
        max_positions=keys.integer("max_seq_len", "max_position_embeddings", default=2048),
    )


def llama4_text(keys: Keys, name: str) -> Architecture:
    """Llama4TextConfig: one shared expert, every n-th layer sparse, every fourth unrotated."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=202_048,
            hidden=5120,
            width=8192,
            layers=48,
            heads=40,
            kv_heads=8,
            head_dim=128,
            positions=131_072,
        ),
    )
    experts = replace(
        mixture(keys, shape, shape.mlp.width, experts=16, chosen=1),
        transposed=True,
        shared_width=shape.mlp.width,
    )
    dense = replace(shape.mlp, width=keys.integer("intermediate_size_mlp", default=16_384))
    step = keys.integer("interleave_moe_layer_step", default=1)
    sparse = keys.integers("moe_layers", default=tuple(range(step - 1, shape.layers, step)))
    rotated, unrotated = _llama4_attention(keys, shape.attention)
    interval = keys.integer("no_rope_layer_interval", default=4)
    pattern = keys.integers("no_rope_layers", default=()) or tuple(
        int((layer + 1) % interval != 0) for layer in range(shape.layers)
    )
    rotates = per_layer(keys, "no_rope_layers", pattern, shape.layers)
    norm = rms_norm(shape.hidden)
    blocks = tuple(
        pre_norm(norm, rotated if rotate else unrotated, experts if layer in sparse else dense)
        for layer, rotate in enumerate(rotates)
    )
    return decoder(keys, name, shape, blocks, norm)


def _llama4_attention(keys: Keys, attention: Attention) -> tuple[Attention, Attention]:
    """Return attention with positions, over one chunk, and without, over the whole sequence."""
    bias = keys.flag("attention_bias", default=False)
    unrotated = replace(attention, qkv_bias=bias, output_bias=bias, position="none")
    norm = None
    if keys.flag("use_qk_norm", default=True):
        norm = Norm(kind="rms", width=attention.head_dim, weight=False)
    rotated = replace(
        unrotated,
        position="rope",
        query_norm=norm,
        key_norm=norm,
        window=keys.integer("attention_chunk_size", default=8192),
    )
    return rotated, unrotated


def ernie4_5_moe(keys: Keys, name: str) -> Architecture:
    """Ernie4_5_MoeConfig: the bias that corrects the router's choice is a (frozen) parameter."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=103_424,
            hidden=2560,
            width=12_288,
            layers=28,
            heads=20,
            kv_heads=4,
            positions=131_072,
            tied=True,
        ),
    )
    bias = keys.flag("use_bias", default=False)
    norm = rms_norm(shape.hidden)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    width = keys.integer("moe_intermediate_size", default=1536)
    experts = replace(
        mixture(keys, shape, width, experts=64, chosen=6),
        shared_width=shared_width(keys, width, 2),
        shared_bias=bias,
        router=Router(wide=True),
    )
    correction = Weights(name="correction", shape=(1, experts.experts), role="router")
    dense = pre_norm(norm, attention, replace(shape.mlp, bias=bias))
    sparse = replace(pre_norm(norm, attention, experts), extras=(correction,))
    is_sparse = _ernie_sparse(keys, shape.layers)
    return causal_lm(
        keys,
        name,
        hidden=shape.hidden,
        blocks=tuple(sparse if is_sparse(layer) else dense for layer in range(shape.layers)),
        final_norm=norm,
        tied=shape.tied,
        head_bias=bias,
        max_positions=shape.positions,
    )


def _ernie_sparse(keys: Keys, layers: int) -> Callable[[int], bool]:
    first = keys.integer("moe_layer_start_index", default=1, minimum=0)
    last = keys.integer("moe_layer_end_index", default=-1, minimum=-1)
    step = keys.integer("moe_layer_interval", default=1)
    last = layers - 1 if last == -1 else last
    return lambda layer: first <= layer <= last and (layer + 1) % step == 0


RULES: Final = {
    "dbrx": dbrx,
    "ernie4_5_moe": ernie4_5_moe,
    "gpt_oss": gpt_oss,
    "grok-1": grok,
    "llama4_text": llama4_text,
}
