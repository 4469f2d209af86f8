"""A decoder's numbers under their usual names, and the plain parts that follow from them."""

from collections.abc import Callable

from zeroplan.records import dataclass
from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Component,
    Mlp,
    Norm,
    Sublayer,
)
from zeroplan.spec.families.common import MAX_LAYERS, causal_lm, head_width
from zeroplan.spec.keys import Keys

__all__ = [
    "Defaults",
    "Shape",
    "decoder",
    "layer_norm",
    "offset_rms_norm",
    "pre_norm",
    "read_shape",
    "rms_norm",
    "sliding",
    "uniform",
    "wide_rms_norm",
    "window",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a configuration class of transformers 5.24 takes where a file is silent."""

    vocabulary: int
    hidden: int
    width: int
    layers: int
    heads: int
    kv_heads: int | None = None
    """None: as many as heads. [count]"""
    head_dim: int | None = None
    """None: hidden / heads. [elements]"""
    positions: int
    activation: str = "silu"
    tied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder's depth and ends, with a plain attention and a gated feed-forward layer."""

    hidden: int
    layers: int
    vocabulary: int | None = None
    """What the class takes where a nested file is silent; None: the file must say. [tokens]"""
    positions: int | None
    tied: bool
    attention: Attention
    mlp: Mlp


def read_shape(keys: Keys, default: Defaults) -> Shape:
    """Read the names that Llama's configuration made usual."""
    hidden = keys.size("hidden_size", default=default.hidden)
    heads = keys.size("num_attention_heads", default=default.heads)
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(keys, heads, default.kv_heads),
        head_dim=_head_dim(keys, hidden, heads, default.head_dim),
    )
    mlp = Mlp(
        hidden=hidden,
        width=keys.size("intermediate_size", default=default.width),
        activation=keys.text(
            "hidden_act", "hidden_activation", "activation_function", default=default.activation
        ),
    )
    return Shape(
        hidden=hidden,
        layers=keys.size(
            "num_hidden_layers", "num_layers", default=default.layers, maximum=MAX_LAYERS
        ),
        vocabulary=default.vocabulary,
        positions=keys.integer("max_position_embeddings", default=default.positions),
        tied=keys.flag("tie_word_embeddings", default=default.tied),
        attention=attention,
        mlp=mlp,
    )


def decoder(
    keys: Keys,
    name: str,
    shape: Shape,
    blocks: tuple[Block, ...],
    final_norm: Norm,
) -> Architecture:
    """Frame the blocks with the shape's embedding and head."""
    return causal_lm(
        keys,
        name,
        hidden=shape.hidden,
        blocks=blocks,
        final_norm=final_norm,
        tied=shape.tied,
        max_positions=shape.positions,
        vocabulary=shape.vocabulary,
    )


def rms_norm(width: int) -> Norm:
    """Return an RMSNorm with a weight."""
    return Norm(kind="rms", width=width)


def wide_rms_norm(width: int) -> Norm:
    """Return an RMSNorm whose weight multiplies in fp32 (`Olmo2RMSNorm`)."""
    return Norm(kind="rms", width=width, weighs_wide=True)


def offset_rms_norm(width: int) -> Norm:
    """Return an RMSNorm whose weight is kept less one (`Gemma3RMSNorm`, `Qwen3NextRMSNorm`)."""
    return Norm(kind="rms", width=width, weighs_wide=True, unit_offset=True)


def layer_norm(width: int, *, weight: bool = True, bias: bool = True) -> Norm:
    """Return a LayerNorm."""
    return Norm(kind="layer", width=width, weight=weight, bias=bias)


def pre_norm(norm: Norm, attention: Component, mlp: Component) -> Block:
    """Return the usual block: each branch normalises its input."""
    return Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=norm),
            Sublayer(name="mlp", component=mlp, norm=norm),
        )
    )


def uniform(keys: Keys, name: str, shape: Shape, norm: Norm | None = None) -> Architecture:
    """Return a decoder whose blocks are all alike; without a norm it has RMSNorms."""
    norm = norm or rms_norm(shape.hidden)
    blocks = shape.layers * (pre_norm(norm, shape.attention, shape.mlp),)
    return decoder(keys, name, shape, blocks, norm)


def window(keys: Keys, default: int | None) -> int | None:
    """Return the sliding window; null switches it off, silence leaves the class's [tokens]."""
    if keys.mentions("sliding_window"):
        return keys.integer("sliding_window", default=None)
    return keys.integer("sliding_window_size", default=default)


def sliding(keys: Keys, layers: int, default: Callable[[int], bool]) -> tuple[bool, ...]:
    """Return for each block whether its attention slides: as `layer_types` says, else by rule."""
    types = keys.texts("layer_types", default=None)
    if types is None:
        return tuple(default(index) for index in range(layers))
    if len(types) != layers:
        raise keys.fault("layer_types", types, f"it has one entry for each of the {layers} layers")
    return tuple(kind == "sliding_attention" for kind in types)


def _kv_heads(keys: Keys, heads: int, default: int | None) -> int:
    fallback = heads if default is None or keys.mentions("num_key_value_heads") else default
    kv_heads = keys.integer("num_key_value_heads", default=fallback)
    if heads % kv_heads:
        raise keys.fault("num_key_value_heads", kv_heads, f"it divides the {heads} heads")
    return kv_heads


def _head_dim(keys: Keys, hidden: int, heads: int, default: int | None) -> int:
    if default is None or keys.mentions("head_dim"):
        return head_width(keys, hidden, heads)
    return keys.integer("head_dim", default=default)
