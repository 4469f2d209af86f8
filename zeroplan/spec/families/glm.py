"""The GLM line before its mixtures of experts: ChatGLM 1 to 3, GLM-4.

ChatGLM's classes are published beside the weights (`modeling_chatglm.py`); GLM and GLM-4 are those
of transformers 5.24.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention, Block, Mlp, Norm, Sublayer
from zeroplan.spec.families.common import MAX_LAYERS, causal_lm
from zeroplan.spec.families.shape import (
    Defaults,
    Shape,
    decoder,
    layer_norm,
    pre_norm,
    read_shape,
    rms_norm,
    uniform,
)
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

GLM: Final = Defaults(
    vocabulary=151_552,
    hidden=4096,
    width=13_696,
    layers=40,
    heads=32,
    kv_heads=2,
    head_dim=128,
    positions=131_072,
)


def chatglm(keys: Keys, name: str) -> Architecture:
    """ChatGLM2, ChatGLM3 and GLM-4 9B as first published; a file of ChatGLM-6B is told apart."""
    if keys.has("inner_hidden_size"):
        return _chatglm_6b(keys, name)
    if keys.has("vision_config"):
        vision = keys.mapping["vision_config"]
        raise keys.fault("vision_config", vision, "no rule counts GLM-4V's vision tower yet")
    hidden = keys.integer("hidden_size")
    heads = keys.integer("num_attention_heads")
    bias = keys.flag("add_bias_linear", default=False)
    grouped = keys.flag("multi_query_attention", default=False)
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=keys.integer("multi_query_group_num", default=1, maximum=heads)
        if grouped
        else heads,
        head_dim=keys.integer("kv_channels", default=128),
        qkv_bias=bias or keys.flag("add_qkv_bias", default=False),
        output_bias=bias,
        fused_qkv=True,
    )
    mlp = Mlp(hidden=hidden, width=keys.integer("ffn_hidden_size"), bias=bias, fused_gate_up=True)
    norm = rms_norm(hidden) if keys.flag("rmsnorm", default=True) else layer_norm(hidden)
    last = norm if keys.flag("post_layer_norm", default=True) else None
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=_depth(keys) * (pre_norm(norm, attention, mlp),),
        final_norm=last,
        tied=keys.flag("tie_word_embeddings", default=False),
        max_positions=keys.integer("seq_length", default=2048),
    )


def _chatglm_6b(keys: Keys, name: str) -> Architecture:
    """ChatGLM-6B: LayerNorms, a plain feed-forward layer, biases everywhere, a tied head."""
    hidden = keys.integer("hidden_size")
    heads = keys.integer("num_attention_heads")
    if hidden % heads:
        raise keys.fault("num_attention_heads", heads, f"it divides the hidden size {hidden}")
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        qkv_bias=True,
        output_bias=True,
        fused_qkv=True,
    )
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("inner_hidden_size"),
        gated=False,
        activation="gelu",
        bias=True,
    )
    norm = layer_norm(hidden)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=_depth(keys) * (pre_norm(norm, attention, mlp),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=keys.integer("max_sequence_length", default=2048),
    )


def _depth(keys: Keys) -> int:
    depth: int = keys.integer("num_layers", "num_hidden_layers", maximum=MAX_LAYERS)
    return depth


def glm(keys: Keys, name: str) -> Architecture:
    """GLM-4 9B (`GlmConfig`): QKV biases, gate and up in one matrix."""
    return uniform(keys, name, _shape(keys))


def glm4(keys: Keys, name: str) -> Architecture:
    """GLM-4-0414 (`Glm4Config`): the same with norms on both sides of a branch."""
    shape = _shape(keys)
    norm = rms_norm(shape.hidden)
    block = Block(
        sublayers=(
            _sandwich("attention", shape.attention, norm),
            _sandwich("mlp", shape.mlp, norm),
        )
    )
    return decoder(keys, name, shape, shape.layers * (block,), norm)


def _shape(keys: Keys) -> Shape:
    shape = read_shape(keys, GLM)
    share = keys.number("partial_rotary_factor", default=0.5)
    attention = replace(
        shape.attention,
        qkv_bias=keys.flag("attention_bias", default=True),
        rotary_dim=int(shape.attention.head_dim * share),
    )
    return replace(shape, attention=attention, mlp=replace(shape.mlp, fused_gate_up=True))


def _sandwich(name: str, component: Attention | Mlp, norm: Norm) -> Sublayer:
    return Sublayer(name=name, component=component, norm=norm, post_norm=norm)


RULES: Final = {"chatglm": chatglm, "glm": glm, "glm4": glm4}
