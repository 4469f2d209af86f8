"""Pairs of towers whose outputs are compared: CLIP and SigLIP."""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Embedding, Projection, Stack, Weights
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.shape import layer_norm, pre_norm
from zeroplan.spec.families.towers import both_ways, plain_mlp, vision_tower
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]


def clip(keys: Keys, name: str) -> Architecture:
    """CLIP (transformers 5.24, CLIPModel): two towers, two projections and a temperature."""
    width = keys.integer("projection_dim", default=512)
    text = _text_tower(keys.nested("text_config"), _CLIP_TEXT, activation="quick_gelu", causal=True)
    vision = vision_tower(keys.nested("vision_config"), "clip_vision_model")
    towers = tuple(
        replace(
            tower,
            tail=(
                Projection(
                    name=f"{tower.name}_projection",
                    widths=(tower.hidden, width),
                    rate=(1, tower.positions or 1),
                    bias=False,
                ),
            ),
        )
        for tower in (vision, text)
    )
    return _pair(keys, name, towers, ("logit_scale", ()))


def siglip(keys: Keys, name: str) -> Architecture:
    """SigLIP (transformers 5.24, SiglipModel): two towers, a temperature and a bias."""
    inner = keys.nested("text_config")
    text = _text_tower(inner, _SIGLIP_TEXT, activation="gelu_pytorch_tanh", causal=False)
    width = inner.integer("projection_size", default=text.hidden)
    head = Projection(name="head", widths=(text.hidden, width), rate=(1, text.positions or 1))
    vision = vision_tower(keys.nested("vision_config"), "siglip_vision_model")
    towers = (vision, replace(text, tail=(head,)))
    return _pair(keys, name, towers, ("logit_scale", (1,)), ("logit_bias", (1,)))


_CLIP_TEXT: Final = (49_408, 512, 8, 2048, 77)
_SIGLIP_TEXT: Final = (32_000, 768, 12, 3072, 64)
"""Defaults of the text towers: vocabulary, hidden, heads, width, positions."""


def _text_tower(
    keys: Keys, defaults: tuple[int, int, int, int, int], *, activation: str, causal: bool
) -> Stack:
    vocabulary, hidden, heads, width, positions = defaults
    hidden = keys.integer("hidden_size", default=hidden)
    attention = both_ways(keys, hidden, keys.integer("num_attention_heads", default=heads))
    mlp = plain_mlp(
        hidden,
        keys.integer("intermediate_size", default=width),
        keys.text("hidden_act", default=activation),
    )
    positions = keys.integer("max_position_embeddings", default=positions)
    layers = keys.integer("num_hidden_layers", default=12, maximum=MAX_LAYERS)
    block = pre_norm(layer_norm(hidden), replace(attention, causal=causal), mlp)
    return Stack(
        name="text",
        kind="encoder",
        hidden=hidden,
        embeddings=(
            Embedding(
                name="embedding",
                rows=keys.integer("vocab_size", default=vocabulary),
                width=hidden,
            ),
            Embedding(name="positions", rows=positions, width=hidden, kind="position"),
        ),
        blocks=(block,) * layers,
        final_norm=layer_norm(hidden),
        positions=positions,
    )


def _pair(
    keys: Keys,
    name: str,
    towers: tuple[Stack, ...],
    *scalars: tuple[str, tuple[int, ...]],
) -> Architecture:
    extras = tuple(Weights(name=scalar, shape=shape) for scalar, shape in scalars)
    last = towers[-1]
    stacks = (*towers[:-1], replace(last, extras=(*last.extras, *extras)))
    return Architecture(
        name=name,
        model_type=keys.model_type,
        class_name=keys.class_name,
        stacks=stacks,
        head=None,
        max_positions=last.positions,
        source=keys.place,
    )


RULES: Final = {"clip": clip, "siglip": siglip}
