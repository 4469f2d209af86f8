"""Vision-language models of an image encoder, a projector and any language model.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Projection, Stack, Weights
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.composite import compose, filled, language_model, tied
from zeroplan.spec.families.shape import layer_norm, pre_norm, rms_norm
from zeroplan.spec.families.towers import both_ways, grid, plain_mlp, vision_tower
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

CLIP_LARGE: Final = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
"""What LlavaConfig takes where the file has no `vision_config` at all."""

SIGLIP_SO400M: Final = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
    "vision_use_head": False,
}
"""The same of LlavaOnevisionConfig."""


ORIGINAL_LLAVA: Final = {"llava_mistral": "mistral", "llava_qwen": "qwen2"}
"""Language models of LLaVA's own code other than Llama (llava_mistral.py, llava_qwen.py)."""


def llava(keys: Keys, name: str) -> Architecture:
    """LlavaConfig: two layers between the tower and the language model, by default CLIP and Llama."""
    if keys.has("mm_vision_tower") and not keys.has("text_config"):
        return _original_llava(keys, name)
    return _llava(keys, language_model(keys, name, "llama"), CLIP_LARGE)


def _original_llava(keys: Keys, name: str) -> Architecture:
    """Read a file of LLaVA's own code (haotian-liu/LLaVA, multimodal_projector/builder.py).

    The language model's keys stand at the top, the tower is CLIP's large one, and the projector
    is one layer unless the file says `mlp2x_gelu`.
    """
    kind = ORIGINAL_LLAVA.get(keys.model_type, "llama")
    nested = Keys({"text_config": {**keys.mapping, "model_type": kind}}, keys.place)
    nested.defaults = keys.defaults
    text = language_model(nested, name, kind)
    projector = keys.text("mm_projector_type", default="linear")
    deep = re.fullmatch(r"mlp(\d)x_gelu", projector)
    if deep is None and projector != "linear":
        raise keys.fault("mm_projector_type", projector, "write linear, mlp2x_gelu or the like")
    newline = "unpad" in keys.text("mm_patch_merge_type", default="flat")
    layers = int(deep[1]) if deep else 1
    found = _llava(keys, text, CLIP_LARGE, newline=newline, layers=layers)
    tower = keys.text("mm_vision_tower")
    return replace(
        found,
        assumptions=(*found.assumptions, f"tower {tower!r} is counted as CLIP's large one at 336"),
    )


def llava_next(keys: Keys, name: str) -> Architecture:
    """LlavaNextConfig: LLaVA, and a token that ends each row of a tiled image."""
    return _llava(keys, language_model(keys, name, "llama"), CLIP_LARGE, newline=True)


def llava_onevision(keys: Keys, name: str) -> Architecture:
    """LlavaOnevisionConfig: LLaVA-NeXT over SigLIP and Qwen2."""
    return _llava(keys, language_model(keys, name, "qwen2"), SIGLIP_SO400M, newline=True)


def _llava(
    keys: Keys,
    text: Architecture,
    absent: Mapping[str, object],
    *,
    newline: bool = False,
    layers: int = 2,
) -> Architecture:
    tower = _tower(keys, absent)
    projector = _projector(keys, tower, text, layers=layers, bias=True)
    tail = (replace(projector, rate=_without_class_token(tower)),)
    width = text.stacks[-1].hidden
    extras = (Weights(name="image_newline", shape=(width,)),) if newline else ()
    tower = replace(tower, tail=tail, extras=(*tower.extras, *extras))
    return compose(keys, tower, text, ties=tied(keys, text))


def _tower(keys: Keys, absent: Mapping[str, object]) -> Stack:
    inner = keys.nested("vision_config")
    if not inner.mapping:
        inner = filled(inner, absent)
    return vision_tower(inner, str(absent["model_type"]))


def _projector(
    keys: Keys, tower: Stack, text: Architecture, *, bias: bool, layers: int = 2
) -> Projection:
    """Return the projector, which may read several of the tower's layers side by side."""
    read = keys.mapping.get("vision_feature_layer")
    taps = len(read) if isinstance(read, list) else 1
    return Projection(
        name="multi_modal_projector",
        widths=(taps * tower.hidden, *(text.stacks[-1].hidden,) * layers),
        bias=keys.flag("multimodal_projector_bias", default=bias),
        activation=keys.text("projector_hidden_act", default="gelu") if layers > 1 else None,
    )


def _without_class_token(tower: Stack) -> tuple[int, int]:
    positions = tower.positions or 1
    has_class_token = any(extra.name == "class_embedding" for extra in tower.extras)
    return (positions - 1, positions) if has_class_token else (1, 1)


def mistral3(keys: Keys, name: str) -> Architecture:
    """Mistral3Config: Pixtral's tower, 2 x 2 patches merged before the projector.

    The class ties by default, but the published checkpoints have a head of their own.
    """
    text = language_model(keys, name, "mistral")
    tower = _tower(keys, {"model_type": "pixtral"})
    side = keys.integer("spatial_merge_size", default=2)
    merger = Projection(
        name="patch_merger",
        widths=(side**2 * tower.hidden, tower.hidden),
        rate=(1, side**2),
        bias=False,
        norm=rms_norm(tower.hidden),
    )
    projector = replace(_projector(keys, tower, text, bias=False), rate=merger.rate)
    tower = replace(tower, tail=(merger, projector))
    return compose(keys, tower, text, ties=tied(keys, text))


def gemma3(keys: Keys, name: str) -> Architecture:
    """Gemma3Config: SigLIP's patches are pooled to 256 tokens, normalised and projected."""
    text = language_model(keys, name, "gemma3_text")
    tower = _tower(keys, {"model_type": "siglip_vision_model"})
    projector = Projection(
        name="multi_modal_projector",
        widths=(tower.hidden, text.stacks[-1].hidden),
        rate=(keys.integer("mm_tokens_per_image", default=256), tower.positions or 1),
        bias=False,
        norm=rms_norm(tower.hidden),
        transposed=True,
    )
    ties = keys.flag("tie_word_embeddings", default=True)
    return compose(keys, replace(tower, tail=(projector,)), text, ties=ties)


def paligemma(keys: Keys, name: str) -> Architecture:
    """PaliGemmaConfig: SigLIP, one layer, Gemma or Gemma 2."""
    text = language_model(keys, name, "gemma")
    tower = _tower(keys, {**SIGLIP_SO400M, "num_hidden_layers": 27, "image_size": 224})
    width = keys.integer("projection_dim", default=2048)
    projector = Projection(name="multi_modal_projector", widths=(tower.hidden, width))
    ties = keys.flag("tie_word_embeddings", default=True)
    return compose(keys, replace(tower, tail=(projector,)), text, ties=ties)


def llama4(keys: Keys, name: str) -> Architecture:
    """Llama4Config: a rotary tower whose patches are shuffled 4 to 1, then three layers."""
    text = language_model(keys, name, "llama4_text")
    tower = _llama4_tower(keys.nested("vision_config"), text.stacks[-1].hidden)
    return compose(keys, tower, text)


def _llama4_tower(keys: Keys, text_hidden: int) -> Stack:
    """Return the tower of Llama4VisionConfig with its adapter and the projector."""
    hidden = keys.integer("hidden_size", default=768)
    width = keys.integer("intermediate_size", default=5632)
    heads = keys.integer("num_attention_heads", default=16)
    attention = both_ways(keys, hidden, heads, rotary=True)
    block = pre_norm(layer_norm(hidden), attention, plain_mlp(hidden, width, "gelu"))
    count, patch = grid(keys, 448, 14)
    channels = keys.integer("num_channels", default=3)
    layers = keys.integer("num_hidden_layers", default=34, maximum=MAX_LAYERS)
    return Stack(
        name="vision",
        kind="vision",
        hidden=hidden,
        embeddings=(),
        embedding_norm=layer_norm(hidden),
        stem=(
            Projection(
                name="patch_embedding",
                widths=(channels * patch[0] * patch[1], hidden),
                bias=False,
            ),
        ),
        extras=(
            Weights(name="class_embedding", shape=(hidden,)),
            Weights(name="positional_embedding_vlm", shape=(count + 1, hidden)),
        ),
        blocks=(block,) * layers,
        final_norm=layer_norm(hidden),
        tail=_llama4_projectors(keys, width, text_hidden, count),
        positions=count + 1,
    )


def _llama4_projectors(
    keys: Keys, width: int, text_hidden: int, patches: int
) -> tuple[Projection, ...]:
    """Return the adapter, which sees shuffled patches, and the projector to the text's width."""
    inner = keys.integer("projector_input_dim", default=4096)
    outer = keys.integer("projector_output_dim", default=4096)
    vision_output = keys.integer("vision_output_dim", default=7680)
    share = keys.number("pixel_shuffle_ratio", default=0.5)
    rate = (round(share**2 * patches), patches + 1)
    return tuple(
        Projection(name=part, widths=widths, rate=rate, bias=False, activation=activation)
        for part, widths, activation in (
            ("adapter.fc1", (width, inner), "gelu"),
            ("adapter.fc2", (outer, outer), "gelu"),
            ("multi_modal_projector", (vision_output, text_hidden), None),
        )
    )


RULES: Final = {
    "llava": llava,
    "llava_llama": llava,
    "llava_mistral": llava,
    "llava_qwen": llava,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "mistral3": mistral3,
    "gemma3": gemma3,
    "paligemma": paligemma,
    "llama4": llama4,
}
