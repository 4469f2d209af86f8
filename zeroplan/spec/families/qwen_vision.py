"""Qwen's vision-language models: towers without a fixed image size, patches merged 2 x 2.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Embedding,
    Mlp,
    Norm,
    Projection,
    Stack,
)
from zeroplan.spec.families import rule
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.composite import compose, language_model, tied
from zeroplan.spec.families.shape import layer_norm, pre_norm, rms_norm
from zeroplan.spec.families.towers import both_ways, plain_mlp
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

PATCHES: Final = 48 * 48
"""Assumed patches of an image: the grid that Qwen3-VL's position table holds. [tokens]"""

TEXT: Final = {
    "vocab_size": 152_064,
    "hidden_size": 8192,
    "intermediate_size": 29_568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
"""Qwen2VLTextConfig and Qwen2_5_VLTextConfig."""

TEXT_MOE: Final = {
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "moe_intermediate_size": 1408,
    "num_experts": 60,
    "num_experts_per_tok": 4,
}
"""Qwen3VLMoeTextConfig, where it differs from Qwen3MoeConfig."""


def qwen2_vl(keys: Keys, name: str) -> Architecture:
    """Qwen2VLConfig: the tower's `hidden_size` is its output width, `embed_dim` its own."""
    inner = keys.nested("vision_config")
    hidden = inner.integer("embed_dim", default=1280)
    width = int(inner.number("mlp_ratio", default=4.0) * hidden)
    attention = _attention(inner, hidden)
    mlp = plain_mlp(hidden, width, inner.text("hidden_act", default="quick_gelu"))
    norm = layer_norm(hidden)
    output = inner.integer("hidden_size", default=3584)
    return _qwen2(keys, name, _tower(inner, norm, (pre_norm(norm, attention, mlp),), output))


def qwen2_5_vl(keys: Keys, name: str) -> Architecture:
    """Qwen2_5_VLConfig: RMSNorm, gated MLPs, windows of 112 pixels in all blocks but a few."""
    inner = keys.nested("vision_config")
    hidden = inner.integer("hidden_size", default=3584)
    side = inner.integer("window_size", default=112) // inner.integer("patch_size", default=14)
    whole = _attention(inner, hidden)
    mlp = Mlp(
        hidden=hidden,
        width=inner.integer("intermediate_size", default=3420),
        activation=inner.text("hidden_act", default="silu"),
        bias=True,
    )
    norm = rms_norm(hidden)
    everywhere = inner.integers("fullatt_block_indexes", default=(7, 15, 23, 31))
    blocks = tuple(
        pre_norm(norm, whole if index in everywhere else replace(whole, window=side**2), mlp)
        for index in range(_depth(inner, 32))
    )
    output = inner.integer("out_hidden_size", default=3584)
    return _qwen2(keys, name, _tower(inner, norm, blocks, output))


def qwen3_vl(keys: Keys, name: str) -> Architecture:
    """Qwen3VLConfig: a position table, and mergers for the states of some blocks."""
    text = language_model(keys, name, "qwen3", renamed={"qwen3_vl_text": "qwen3"})
    return _qwen3(keys, text, deep=True)


def qwen3_vl_moe(keys: Keys, name: str) -> Architecture:
    """Qwen3VLMoeConfig: the same over experts."""
    renamed = {"qwen3_vl_moe_text": "qwen3_moe"}
    text = language_model(keys, name, "qwen3_moe", TEXT_MOE, renamed)
    return _qwen3(keys, text, deep=True)


def qwen3_5(keys: Keys, name: str) -> Architecture:
    """Qwen3_5Config: the tower of Qwen3-VL without the further mergers."""
    return _qwen3(keys, language_model(keys, name, "qwen3_5_text"), deep=False)


def qwen3_5_moe(keys: Keys, name: str) -> Architecture:
    """Qwen3_5MoeConfig: the same over experts."""
    return _qwen3(keys, language_model(keys, name, "qwen3_5_moe_text"), deep=False)


def _qwen2(keys: Keys, name: str, tower: Stack) -> Architecture:
    """Add the language model, whose keys most files have at the top."""
    if not keys.has("text_config"):
        return compose(keys, tower, rule("qwen2")(keys, name))
    renamed = dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text"), "qwen2")
    text = language_model(keys, name, "qwen2", TEXT, renamed)
    return compose(keys, tower, text, ties=tied(keys, text))


def _qwen3(keys: Keys, text: Architecture, *, deep: bool) -> Architecture:
    inner = keys.nested("vision_config")
    hidden = inner.integer("hidden_size", default=1152)
    attention = _attention(inner, hidden)
    width = inner.integer("intermediate_size", default=4304)
    mlp = plain_mlp(hidden, width, inner.text("hidden_act", default="gelu_pytorch_tanh"))
    norm = layer_norm(hidden)
    output = inner.integer("out_hidden_size", default=3584)
    tower = _tower(
        inner, norm, (pre_norm(norm, attention, mlp),), output, depth=27, patch=16, bias=True
    )
    rows = inner.integer("num_position_embeddings", default=PATCHES)
    table = Embedding(name="pos_embed", rows=rows, width=hidden, kind="position")
    merger = tower.tail[0]
    wide = replace(merger, norm=layer_norm(merger.widths[0]), side=True)
    taps = inner.integers("deepstack_visual_indexes", default=(8, 16, 24)) if deep else ()
    mergers = tuple(replace(wide, name=f"deepstack_merger.{i}") for i in range(len(taps)))
    tower = replace(tower, embeddings=(table,), tail=(*mergers, merger))
    ties = keys.flag("tie_word_embeddings", default=False)
    return compose(keys, tower, text, ties=ties)


def _attention(keys: Keys, hidden: int) -> Attention:
    heads = keys.integer("num_heads", default=16)
    return both_ways(keys, hidden, heads, fused=True, rotary=True)


def _depth(keys: Keys, default: int) -> int:
    depth: int = keys.integer("depth", default=default, maximum=MAX_LAYERS)
    return depth


def _tower(
    keys: Keys,
    norm: Norm,
    blocks: tuple[Block, ...],
    output: int,
    *,
    depth: int = 32,
    patch: int = 14,
    bias: bool = False,
) -> Stack:
    """Frame the blocks (one is repeated) with a 3-D patch embedding and the patch merger."""
    patch = keys.integer("patch_size", default=patch)
    times = keys.integer("temporal_patch_size", default=2)
    channels = keys.integer("in_channels", "in_chans", default=3)
    merged = keys.integer("spatial_merge_size", default=2) ** 2
    wide = merged * norm.width
    return Stack(
        name="vision",
        kind="vision",
        hidden=norm.width,
        embeddings=(),
        stem=(
            Projection(
                name="patch_embed",
                widths=(channels, norm.width),
                kernel=(times, patch, patch),
                bias=bias,
            ),
        ),
        blocks=blocks if len(blocks) > 1 else blocks * _depth(keys, depth),
        final_norm=None,
        tail=(
            Projection(
                name="merger",
                widths=(wide, wide, output),
                rate=(1, merged),
                activation="gelu",
                norm=norm,
            ),
        ),
        positions=PATCHES,
    )


RULES: Final = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl_moe,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
}
