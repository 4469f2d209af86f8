"""Towers that see all positions at once: their common parts, and the image encoders."""

from math import prod
from typing import Final

from zeroplan.spec.architecture import (
    Attention,
    Block,
    Embedding,
    Mlp,
    Norm,
    Projection,
    Stack,
    Weights,
)
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.shape import layer_norm, pre_norm, rms_norm
from zeroplan.spec.keys import Keys

__all__ = [
    "both_ways",
    "dense",
    "grid",
    "patch_embedding",
    "plain_mlp",
    "vision_tower",
    "vit_tower",
]


def both_ways(
    keys: Keys,
    hidden: int,
    heads: int,
    *,
    bias: bool = True,
    output_bias: bool | None = None,
    fused: bool = False,
    rotary: bool = False,
) -> Attention:
    """Return attention without a mask; every head has its own keys and values."""
    if hidden % heads:
        raise keys.fault("num_attention_heads", heads, f"it divides the hidden size {hidden}")
    return Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        qkv_bias=bias,
        output_bias=bias if output_bias is None else output_bias,
        fused_qkv=fused,
        position="rope" if rotary else "none",
        causal=False,
    )


def plain_mlp(hidden: int, width: int, activation: str) -> Mlp:
    """Return two linear layers with biases."""
    return Mlp(hidden=hidden, width=width, gated=False, activation=activation, bias=True)


def dense(name: str, width: int, inputs: int) -> tuple[Weights, ...]:
    """Return the weights of a linear layer that one token per sequence goes through."""
    return (
        Weights(name=f"{name}.weight", shape=(width, inputs)),
        Weights(name=f"{name}.bias", shape=(width,)),
    )


def grid(keys: Keys, image_size: int, patch_size: int) -> tuple[int, tuple[int, int]]:
    """Return the number of patches of an image and the extents of a patch; both may be pairs."""
    image = _pair(keys, "image_size", image_size)
    patch = _pair(keys, "patch_size", patch_size)
    patches = prod(side // extent for side, extent in zip(image, patch, strict=True))
    if not patches:
        raise keys.fault(
            "patch_size", keys.mapping.get("patch_size"), "it is at most the image size"
        )
    return patches, patch


def _pair(keys: Keys, name: str, default: int) -> tuple[int, int]:
    if isinstance(keys.mapping.get(name), list | tuple):
        sides = keys.integers(name, minimum=1)
        if len(sides) != 2:  # noqa: PLR2004 height and width
            raise keys.fault(name, sides, "write a number or a pair")
        return sides[0], sides[1]
    side: int = keys.integer(name, default=default)
    return side, side


def vit_tower(keys: Keys) -> Stack:
    """ViT (transformers 5.24, ViTConfig and ViTModel): a class token and learned positions."""
    hidden = keys.integer("hidden_size", default=768)
    patches, patch = grid(keys, 224, 16)
    attention = both_ways(
        keys,
        hidden,
        keys.integer("num_attention_heads", default=12),
        bias=keys.flag("qkv_bias", default=True),
        output_bias=True,
    )
    mlp = plain_mlp(
        hidden,
        keys.integer("intermediate_size", default=3072),
        keys.text("hidden_act", default="gelu"),
    )
    return Stack(
        name="vision",
        kind="vision",
        hidden=hidden,
        embeddings=(),
        stem=(patch_embedding(keys, hidden, patch),),
        extras=(
            Weights(name="cls_token", shape=(1, 1, hidden)),
            Weights(name="position_embeddings", shape=(1, patches + 1, hidden)),
        ),
        blocks=_blocks(keys, layer_norm(hidden), attention, mlp, default=12),
        final_norm=layer_norm(hidden),
        positions=patches + 1,
    )


def _clip(keys: Keys) -> Stack:
    """CLIP's image encoder (transformers 5.24, CLIPVisionConfig and CLIPVisionModel)."""
    hidden, attention, mlp = _parts(keys, "quick_gelu")
    patches, patch = grid(keys, 224, 32)
    return Stack(
        name="vision",
        kind="vision",
        hidden=hidden,
        embeddings=(_positions(patches + 1, hidden),),
        embedding_norm=layer_norm(hidden),
        stem=(patch_embedding(keys, hidden, patch, bias=False),),
        extras=(Weights(name="class_embedding", shape=(hidden,)),),
        blocks=_blocks(keys, layer_norm(hidden), attention, mlp, default=12),
        final_norm=layer_norm(hidden),
        positions=patches + 1,
    )


def _siglip(keys: Keys) -> Stack:
    """SigLIP's image encoder (transformers 5.24, SiglipVisionConfig and SiglipVisionModel)."""
    hidden, attention, mlp = _parts(keys, "gelu_pytorch_tanh")
    patches, patch = grid(keys, 224, 16)
    pooled = keys.flag("vision_use_head", default=True)
    return Stack(
        name="vision",
        kind="vision",
        hidden=hidden,
        embeddings=(_positions(patches, hidden),),
        stem=(patch_embedding(keys, hidden, patch),),
        extras=_attention_pooling(hidden, mlp.width) if pooled else (),
        blocks=_blocks(keys, layer_norm(hidden), attention, mlp, default=12),
        final_norm=layer_norm(hidden),
        positions=patches,
    )


def _attention_pooling(hidden: int, width: int) -> tuple[Weights, ...]:
    """Return a learned query, its attention, norm and MLP (SiglipMultiheadAttentionPoolingHead)."""
    return (
        Weights(name="head.probe", shape=(1, 1, hidden)),
        *dense("head.attention.in_proj", 3 * hidden, hidden),
        *dense("head.attention.out_proj", hidden, hidden),
        Weights(name="head.layernorm.weight", shape=(hidden,), role="norm"),
        Weights(name="head.layernorm.bias", shape=(hidden,), role="norm"),
        *dense("head.mlp.fc1", width, hidden),
        *dense("head.mlp.fc2", hidden, width),
    )


def _pixtral(keys: Keys) -> Stack:
    """Pixtral's image encoder (transformers 5.24, PixtralVisionConfig): llama-like, no last norm."""
    hidden = keys.integer("hidden_size", default=1024)
    heads = keys.integer("num_attention_heads", default=16)
    attention = both_ways(keys, hidden, heads, bias=False, rotary=True)
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("intermediate_size", default=4096),
        activation=keys.text("hidden_act", default="gelu"),
    )
    patches, patch = grid(keys, 1024, 16)
    return Stack(
        name="vision",
        kind="vision",
        hidden=hidden,
        embeddings=(),
        embedding_norm=rms_norm(hidden),
        stem=(patch_embedding(keys, hidden, patch, bias=False),),
        blocks=_blocks(keys, rms_norm(hidden), attention, mlp, default=24),
        final_norm=None,
        positions=patches,
    )


TOWERS: Final = {
    "clip_vision_model": _clip,
    "siglip_vision_model": _siglip,
    "pixtral": _pixtral,
    "vit": vit_tower,
}


def vision_tower(keys: Keys, default: str) -> Stack:
    """Return the image encoder that a nested configuration names by its `model_type`."""
    model_type = keys.model_type or default
    if model_type not in TOWERS:
        known = ", ".join(TOWERS)
        raise keys.fault("model_type", model_type, f"known image encoders are {known}")
    return TOWERS[model_type](keys)


def _parts(keys: Keys, activation: str) -> tuple[int, Attention, Mlp]:
    """Return the hidden width, attention and MLP of a 12-head, 768-wide encoder."""
    hidden = keys.integer("hidden_size", default=768)
    attention = both_ways(keys, hidden, keys.integer("num_attention_heads", default=12))
    width = keys.integer("intermediate_size", default=3072)
    return hidden, attention, plain_mlp(hidden, width, keys.text("hidden_act", default=activation))


def _blocks(
    keys: Keys, norm: Norm, attention: Attention, mlp: Mlp, *, default: int
) -> tuple[Block, ...]:
    layers = keys.integer("num_hidden_layers", default=default, maximum=MAX_LAYERS)
    return (pre_norm(norm, attention, mlp),) * layers


def patch_embedding(
    keys: Keys, hidden: int, patch: tuple[int, int], *, bias: bool = True
) -> Projection:
    """Return the convolution that brings a patch of pixels to the hidden width."""
    channels = keys.integer("num_channels", default=3)
    return Projection(
        name="patch_embedding",
        widths=(channels, hidden),
        kernel=patch,
        bias=bias,
    )


def _positions(rows: int, width: int) -> Embedding:
    return Embedding(name="position_embedding", rows=rows, width=width, kind="position")
