"""Gemma 1 to 3: wide heads, tied embeddings, from Gemma 2 on a norm on both sides of each branch.

Defaults and parameters are those of transformers 5.24.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention, Block, Sublayer
from zeroplan.spec.families.shape import (
    Defaults,
    Shape,
    decoder,
    offset_rms_norm,
    read_shape,
    sliding,
    uniform,
    window,
)
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

GEMMA: Final = Defaults(
    vocabulary=256_000,
    hidden=3072,
    width=24_576,
    layers=28,
    heads=16,
    kv_heads=16,
    head_dim=256,
    positions=8192,
    activation="gelu_pytorch_tanh",
    tied=True,
)
GEMMA2: Final = replace(GEMMA, hidden=2304, width=9216, layers=26, heads=8, kv_heads=4)
GEMMA3: Final = replace(GEMMA2, vocabulary=262_208, positions=131_072)


def gemma(keys: Keys, name: str) -> Architecture:
    """Gemma: Llama with tied embeddings and heads of 256 (`GemmaConfig`)."""
    shape = read_shape(keys, GEMMA)
    norm = offset_rms_norm(shape.hidden)
    return uniform(keys, name, replace(shape, attention=_biased(keys, shape)), norm)


def gemma2(keys: Keys, name: str) -> Architecture:
    """Gemma 2: norms around each branch, every other layer slides (`Gemma2Config`)."""
    shape = read_shape(keys, GEMMA2)
    return _sandwiched(keys, name, shape, _biased(keys, shape), lambda index: index % 2 == 0)


def gemma3_text(keys: Keys, name: str) -> Architecture:
    """Gemma 3's decoder: Gemma 2 with query and key norms, one layer in six sees all.

    `sliding_window_pattern` is the old name of the period (`Gemma3TextConfig`).
    """
    shape = read_shape(keys, GEMMA3)
    norm = offset_rms_norm(shape.attention.head_dim)
    attention = replace(_biased(keys, shape), query_norm=norm, key_norm=norm)
    period = keys.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _sandwiched(keys, name, shape, attention, lambda index: (index + 1) % period != 0)


def _biased(keys: Keys, shape: Shape) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    return replace(shape.attention, qkv_bias=bias, output_bias=bias)


def _sandwiched(
    keys: Keys, name: str, shape: Shape, attention: Attention, slides: Callable[[int], bool]
) -> Architecture:
    extent, norm = window(keys, 4096), offset_rms_norm(shape.hidden)

    def block(slid: bool) -> Block:  # noqa: FBT001 it is mapped over a tuple of bool
        part = replace(attention, window=extent if slid else None)
        return Block(
            sublayers=(
                Sublayer(name="attention", component=part, norm=norm, post_norm=norm),
                Sublayer(name="mlp", component=shape.mlp, norm=norm, post_norm=norm),
            )
        )

    blocks = tuple(map(block, sliding(keys, shape.layers, slides)))
    return decoder(keys, name, shape, blocks, norm)


RULES: Final = {"gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3_text}
