"""DeciLM and Nemotron-NAS: decoders whose blocks a search made unlike each other.

The classes are published beside the weights (`modeling_decilm.py`, `block_config.py`).
"""

from dataclasses import replace
from typing import Final, Literal

from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Component,
    Mlp,
    Projection,
    Sublayer,
)
from zeroplan.spec.families.common import attention_heads, causal_lm, layers
from zeroplan.spec.families.experts import per_layer
from zeroplan.spec.families.shape import pre_norm, rms_norm
from zeroplan.spec.keys import Keys
from zeroplan.units import round_up

__all__ = ["RULES"]

WIDTH_MULTIPLE: Final = 256
"""Feed-forward widths are rounded up to it (`_ffn_mult_to_intermediate_size`). [elements]"""


def decilm(keys: Keys, name: str) -> Architecture:
    """DeciLMConfig: `block_configs`, or only key-value heads that differ from block to block."""
    hidden = keys.integer("hidden_size")
    depth = layers(keys)
    attention = _attention(keys, hidden)
    if keys.has("block_configs"):
        items = per_layer(keys, "block_configs", keys.objects("block_configs"), depth)
        blocks = tuple(_block(keys, item, attention) for item in items)
    else:
        blocks = _grouped_blocks(keys, attention, depth)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=blocks,
        final_norm=rms_norm(hidden),
        tied=keys.flag("tie_word_embeddings", default=False),
        max_positions=keys.integer("max_position_embeddings", default=2048),
    )


def _attention(keys: Keys, hidden: int) -> Attention:
    heads, kv_heads, head_dim = attention_heads(keys, hidden)
    bias = keys.flag("attention_bias", default=False)
    return Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=bias,
        output_bias=bias,
    )


def _grouped_blocks(keys: Keys, attention: Attention, depth: int) -> tuple[Block, ...]:
    """DeciLM 6B and 7B: `num_key_value_heads_per_layer`."""
    norm = rms_norm(attention.hidden)
    mlp = _mlp(keys, attention.hidden, keys.integer("intermediate_size"))
    name = "num_key_value_heads_per_layer"
    groups = keys.integers(name, default=depth * (attention.kv_heads,), minimum=1)
    return tuple(
        pre_norm(norm, replace(attention, kv_heads=kv_heads), mlp)
        for kv_heads in per_layer(keys, name, groups, depth)
    )


def _block(keys: Keys, item: Keys, attention: Attention) -> Block:
    """Return a block without the branches that it leaves out; those have no norm either."""
    norm = rms_norm(attention.hidden)
    branches = (
        ("attention", _token_mixer(item.nested("attention"), attention)),
        ("mlp", _feed_forward(keys, item.nested("ffn"), attention.hidden)),
    )
    return Block(
        sublayers=tuple(
            Sublayer(name=name, component=component, norm=norm)
            for name, component in branches
            if component is not None
        )
    )


def _token_mixer(keys: Keys, attention: Attention) -> Component | None:
    _refuse(keys, "mamba")
    if keys.flag("no_op", default=False):
        return None
    if keys.flag("replace_with_linear", default=False):
        return _linear(attention.hidden, "attention")
    heads = attention.heads
    if keys.has("num_key_value_heads"):
        return replace(attention, kv_heads=keys.integer("num_key_value_heads", maximum=heads))
    group = keys.integer("n_heads_in_group", maximum=heads)
    return replace(
        attention, kv_heads=heads // group, window=keys.integer("window_length", default=None)
    )


def _feed_forward(keys: Keys, ffn: Keys, hidden: int) -> Component | None:
    _refuse(ffn, "moe")
    if ffn.flag("no_op", default=False):
        return None
    if ffn.flag("replace_with_linear", default=False):
        return _linear(hidden, "mlp")
    if ffn.has("intermediate_size"):
        return _mlp(keys, hidden, ffn.integer("intermediate_size"))
    # The published class rounds the factor first, so that equal blocks compare equal.
    factor = round(ffn.number("ffn_mult"), 6)
    width = round_up(int(2 * factor * hidden / 3), WIDTH_MULTIPLE)
    return _mlp(keys, hidden, width)


def _mlp(keys: Keys, hidden: int, width: int) -> Mlp:
    return Mlp(
        hidden=hidden,
        width=width,
        activation=keys.text("hidden_act", default="silu"),
        bias=keys.flag("mlp_bias", default=False),
    )


def _linear(hidden: int, role: Literal["attention", "mlp"]) -> Projection:
    """Return the single matrix that stands in for a branch."""
    return Projection(name=f"{role}.linear", widths=(hidden, hidden), bias=False, role=role)


def _refuse(keys: Keys, *names: str) -> None:
    for name in names:
        if keys.has(name):
            raise keys.fault(name, keys.mapping[name], "no rule counts such a block yet")


RULES: Final = {"deci": decilm, "decilm": decilm, "nemotron-nas": decilm}
