"""Rotary decoders apart from Llama in their norms: OLMo, Command R, StarCoder 2, Nemotron.

Defaults and parameters are those of transformers 5.24.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention, Block, Norm, Sublayer
from zeroplan.spec.families.shape import (
    Defaults,
    Shape,
    decoder,
    layer_norm,
    read_shape,
    sliding,
    uniform,
    wide_rms_norm,
    window,
)
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

OLMO: Final = Defaults(
    vocabulary=50_304, hidden=4096, width=11_008, layers=32, heads=32, positions=2048
)
COHERE: Final = Defaults(
    vocabulary=256_000, hidden=8192, width=22_528, layers=40, heads=64, positions=8192, tied=True
)
STARCODER2: Final = Defaults(
    vocabulary=49_152,
    hidden=3072,
    width=12_288,
    layers=30,
    heads=24,
    kv_heads=2,
    positions=4096,
    activation="gelu_pytorch_tanh",
    tied=True,
)
NEMOTRON: Final = Defaults(
    vocabulary=256_000,
    hidden=6144,
    width=24_576,
    layers=32,
    heads=48,
    positions=4096,
    activation="relu2",
)


def olmo(keys: Keys, name: str) -> Architecture:
    """OLMo: LayerNorms without parameters (`OlmoConfig`, `OlmoLayerNorm`)."""
    shape = read_shape(keys, OLMO)
    norm = layer_norm(shape.hidden, weight=False, bias=False)
    attention = replace(_biased(keys, shape), wide_rotary=True)
    return uniform(keys, name, replace(shape, attention=attention), norm)


def olmo2(keys: Keys, name: str) -> Architecture:
    """OLMo 2: norms after the branches, and over all queries and all keys (`Olmo2Config`)."""
    shape = read_shape(keys, OLMO)
    norm = wide_rms_norm(shape.hidden)
    blocks = shape.layers * (_post_norm(norm, _wide_normed(_biased(keys, shape)), shape),)
    return decoder(keys, name, shape, blocks, norm)


def olmo3(keys: Keys, name: str) -> Architecture:
    """OLMo 3: OLMo 2 with three layers in four sliding (`Olmo3Config`)."""
    shape = read_shape(keys, OLMO)
    norm, extent = wide_rms_norm(shape.hidden), window(keys, 4096)
    attention = _wide_normed(_biased(keys, shape))
    blocks = tuple(
        _post_norm(norm, replace(attention, window=extent if slid else None), shape)
        for slid in sliding(keys, shape.layers, lambda index: (index + 1) % 4 != 0)
    )
    return decoder(keys, name, shape, blocks, norm)


def cohere(keys: Keys, name: str) -> Architecture:
    """Command R and Aya: parallel branches behind one LayerNorm without bias (`CohereConfig`)."""
    shape = read_shape(keys, COHERE)
    attention = _biased(keys, shape)
    if keys.flag("use_qk_norm", default=False):
        norm = layer_norm(attention.head_dim, bias=False)
        attention = replace(
            attention,
            query_norm=replace(norm, heads=attention.heads),
            key_norm=replace(norm, heads=attention.kv_heads),
        )
    norm = layer_norm(shape.hidden, bias=False)
    return decoder(keys, name, shape, shape.layers * (_parallel(norm, attention, shape),), norm)


def cohere2(keys: Keys, name: str) -> Architecture:
    """Command R7B and A: one layer in four sees all and is not rotated (`Cohere2Config`)."""
    shape = read_shape(keys, COHERE)
    attention, extent = _biased(keys, shape), window(keys, 4096)
    local = replace(attention, window=extent)
    whole = replace(attention, position="none")
    period = keys.integer("sliding_window_pattern", default=4)
    norm = layer_norm(shape.hidden, bias=False)
    blocks = tuple(
        _parallel(norm, local if slid else whole, shape)
        for slid in sliding(keys, shape.layers, lambda index: (index + 1) % period != 0)
    )
    return decoder(keys, name, shape, blocks, norm)


def starcoder2(keys: Keys, name: str) -> Architecture:
    """StarCoder 2: biases everywhere, a plain feed-forward layer (`Starcoder2Config`)."""
    shape = read_shape(keys, STARCODER2)
    bias = keys.flag("use_bias", default=True)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias, window=window(keys, None))
    norm = layer_norm(shape.hidden)
    mlp = replace(shape.mlp, gated=False, bias=bias)
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp), norm)


def nemotron(keys: Keys, name: str) -> Architecture:
    """Nemotron 3, 4 and Minitron: squared ReLU, half of a head rotated (`NemotronConfig`)."""
    shape = read_shape(keys, NEMOTRON)
    share = keys.number("partial_rotary_factor", "rope_percent", default=0.5)
    attention = _biased(keys, shape)
    attention = replace(attention, rotary_dim=int(attention.head_dim * share))
    norm = layer_norm(shape.hidden)
    mlp = replace(shape.mlp, gated=False, bias=keys.flag("mlp_bias", default=False))
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp), norm)


def _biased(keys: Keys, shape: Shape) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    return replace(shape.attention, qkv_bias=bias, output_bias=bias)


def _wide_normed(attention: Attention) -> Attention:
    return replace(
        attention,
        wide_rotary=True,
        query_norm=wide_rms_norm(attention.heads * attention.head_dim),
        key_norm=wide_rms_norm(attention.kv_heads * attention.head_dim),
    )


def _post_norm(norm: Norm, attention: Attention, shape: Shape) -> Block:
    return Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=None, post_norm=norm),
            Sublayer(name="mlp", component=shape.mlp, norm=None, post_norm=norm),
        )
    )


def _parallel(norm: Norm, attention: Attention, shape: Shape) -> Block:
    return Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=norm),
            Sublayer(name="mlp", component=shape.mlp, norm=None),
        ),
        parallel=True,
        shared_norm=True,
    )


RULES: Final = {
    "cohere": cohere,
    "cohere2": cohere2,
    "nemotron": nemotron,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "starcoder2": starcoder2,
}
