"""Llama and its kin: rotary positions, RMSNorm before each branch, a gated feed-forward layer.

Defaults are those of the configuration classes of transformers 5.24, parameters those of the
modelling classes; families with code of their own name its file.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention
from zeroplan.spec.families.shape import (
    Defaults,
    Shape,
    decoder,
    pre_norm,
    read_shape,
    rms_norm,
    sliding,
    uniform,
    window,
)
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

LLAMA: Final = Defaults(
    vocabulary=32_000, hidden=4096, width=11_008, layers=32, heads=32, positions=2048
)
MISTRAL: Final = replace(LLAMA, width=14_336, kv_heads=8, positions=131_072)
QWEN2: Final = replace(LLAMA, vocabulary=151_936, width=22_016, kv_heads=32, positions=32_768)
QWEN3: Final = replace(QWEN2, head_dim=128)
PHI3: Final = replace(LLAMA, vocabulary=32_064, hidden=3072, width=8192, positions=4096)
SMOLLM3: Final = Defaults(
    vocabulary=128_256,
    hidden=2048,
    width=11_008,
    layers=36,
    heads=16,
    kv_heads=4,
    positions=32_768,
    tied=True,
)


def llama(keys: Keys, name: str) -> Architecture:
    """Llama 1 to 3.3, Code Llama, Yi, SmolLM, Granite (`LlamaConfig`)."""
    shape = read_shape(keys, LLAMA)
    bias = keys.flag("attention_bias", default=False)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    mlp = replace(shape.mlp, bias=keys.flag("mlp_bias", default=False))
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp))


def mistral(keys: Keys, name: str) -> Architecture:
    """Mistral: Llama without biases, with a sliding window (`MistralConfig`)."""
    shape = read_shape(keys, MISTRAL)
    attention = replace(shape.attention, window=window(keys, 4096))
    return uniform(keys, name, replace(shape, attention=attention))


def qwen(keys: Keys, name: str) -> Architecture:
    """Qwen of 2023 (`modeling_qwen.py` beside the weights).

    Its `intermediate_size` counts both halves of the gated layer, and `no_bias` spares the query,
    key and value projection.
    """
    shape = read_shape(keys, LLAMA)
    if shape.mlp.width % 2:
        raise keys.fault("intermediate_size", shape.mlp.width, "it counts two equal halves")
    bias = not keys.flag("no_bias", default=True)
    attention = replace(
        shape.attention,
        head_dim=keys.integer("kv_channels", default=shape.attention.head_dim),
        qkv_bias=True,
        output_bias=bias,
        fused_qkv=True,
    )
    mlp = replace(shape.mlp, width=shape.mlp.width // 2, bias=bias)
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp))


def qwen2(keys: Keys, name: str) -> Architecture:
    """Qwen 1.5 to 2.5: query, key and value biases that no key mentions (`Qwen2Config`)."""
    shape = read_shape(keys, QWEN2)
    return _late_sliding(keys, name, shape, replace(shape.attention, qkv_bias=True))


def qwen3(keys: Keys, name: str) -> Architecture:
    """Qwen 3: a norm on each query and key head (`Qwen3Config`)."""
    shape = read_shape(keys, QWEN3)
    bias = keys.flag("attention_bias", default=False)
    norm = rms_norm(shape.attention.head_dim)
    attention = replace(
        shape.attention, qkv_bias=bias, output_bias=bias, query_norm=norm, key_norm=norm
    )
    return _late_sliding(keys, name, shape, attention)


def mimo(keys: Keys, name: str) -> Architecture:
    """MiMo: Qwen 2 with a switch for the biases (`modeling_mimo.py` beside the weights).

    Its layer for multi-token prediction is no part of the class that is counted.
    """
    shape = read_shape(keys, QWEN2)
    bias = keys.flag("attention_bias", default=True)
    return _late_sliding(keys, name, shape, replace(shape.attention, qkv_bias=bias))


def phi3(keys: Keys, name: str) -> Architecture:
    """Phi 3, 3.5 and 4: fused projections, a partial rotation (`Phi3Config`)."""
    shape = read_shape(keys, PHI3)
    share = keys.number("partial_rotary_factor", default=1.0)
    attention = replace(
        shape.attention,
        fused_qkv=True,
        rotary_dim=int(shape.attention.head_dim * share),
        window=window(keys, None),
    )
    mlp = replace(shape.mlp, fused_gate_up=True)
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp))


def baichuan(keys: Keys, name: str) -> Architecture:
    """Baichuan 1 and 2: one packed projection (`modeling_baichuan.py` beside the weights).

    The 13B models, whose files set no `max_position_embeddings`, use ALiBi.
    """
    rotary = keys.has("max_position_embeddings")
    shape = read_shape(
        keys, replace(LLAMA, positions=keys.integer("model_max_length", default=4096))
    )
    attention = replace(shape.attention, fused_qkv=True, position="rope" if rotary else "alibi")
    return uniform(keys, name, replace(shape, attention=attention))


def smollm3(keys: Keys, name: str) -> Architecture:
    """SmolLM3: Llama with every fourth layer left unrotated (`SmolLM3Config`)."""
    shape = read_shape(keys, SMOLLM3)
    bias = keys.flag("attention_bias", default=False)
    rotated = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    mlp = replace(shape.mlp, bias=keys.flag("mlp_bias", default=False))
    interval = keys.integer("no_rope_layer_interval", default=4)
    pattern = tuple(int((index + 1) % interval != 0) for index in range(shape.layers))
    marks = keys.integers("no_rope_layers", default=pattern)
    if len(marks) != shape.layers:
        raise keys.fault("no_rope_layers", marks, f"it has one entry for each of {shape.layers}")
    norm = rms_norm(shape.hidden)
    blocks = tuple(
        pre_norm(norm, rotated if mark else replace(rotated, position="none"), mlp)
        for mark in marks
    )
    return decoder(keys, name, shape, blocks, norm)


def _late_sliding(keys: Keys, name: str, shape: Shape, attention: Attention) -> Architecture:
    """Return a model whose blocks slide from `max_window_layers` on, if they may at all."""
    extent = window(keys, 4096) if keys.flag("use_sliding_window", default=False) else None
    first = keys.integer("max_window_layers", default=28, minimum=0)
    slides = sliding(keys, shape.layers, lambda index: extent is not None and index >= first)
    norm = rms_norm(shape.hidden)
    blocks = tuple(
        pre_norm(norm, replace(attention, window=extent if slid else None), shape.mlp)
        for slid in slides
    )
    return decoder(keys, name, shape, blocks, norm)


RULES: Final = {
    "baichuan": baichuan,
    "granite": llama,
    "llama": llama,
    "mimo": mimo,
    "mistral": mistral,
    "phi3": phi3,
    "qwen": qwen,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "smollm3": smollm3,
    "yi": llama,
}
