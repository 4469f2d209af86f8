"""Qwen's hybrids: three layers of gated delta rule to one of gated attention.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention, Block, Component, Sublayer
from zeroplan.spec.families.experts import mixture
from zeroplan.spec.families.shape import Defaults, Shape, decoder, offset_rms_norm, read_shape
from zeroplan.spec.keys import Keys
from zeroplan.spec.mixers import GatedDeltaNet
from zeroplan.spec.moe import MixtureOfExperts, Router

__all__ = ["RULES"]


def qwen3_next(keys: Keys, name: str) -> Architecture:
    """Qwen3NextConfig: experts in every layer, with a shared one behind a gate."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=151_936,
            hidden=2048,
            width=5632,
            layers=48,
            heads=16,
            kv_heads=2,
            head_dim=256,
            positions=32_768,
        ),
    )
    router = Router(normalised=keys.flag("norm_topk_prob", default=True))
    experts = replace(_experts(keys, shape, experts=512, chosen=10), router=router)
    step = keys.integer("decoder_sparse_step", default=1)
    dense = keys.integers("mlp_only_layers", default=())
    rest = tuple(
        shape.mlp if layer in dense or (layer + 1) % step else experts
        for layer in range(shape.layers)
    )
    return _hybrid(keys, name, shape, rest, fused=True)


def qwen3_5(keys: Keys, name: str) -> Architecture:
    """Qwen3_5TextConfig: an MLP in every layer."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=248_320,
            hidden=4096,
            width=12_288,
            layers=32,
            heads=16,
            kv_heads=4,
            head_dim=256,
            positions=32_768,
        ),
    )
    return _hybrid(keys, name, shape, (shape.mlp,) * shape.layers, fused=False)


def qwen3_5_moe(keys: Keys, name: str) -> Architecture:
    """Qwen3_5MoeTextConfig: experts in every layer; the class has no `intermediate_size`."""
    inner = Keys({"intermediate_size": 512, **keys.mapping}, keys.place, keys.path)
    inner.defaults = keys.defaults
    shape = read_shape(
        inner,
        Defaults(
            vocabulary=248_320,
            hidden=2048,
            width=512,
            layers=40,
            heads=16,
            kv_heads=2,
            head_dim=256,
            positions=32_768,
        ),
    )
    experts = _experts(keys, shape, experts=256, chosen=8)
    return _hybrid(keys, name, shape, (experts,) * shape.layers, fused=False)


def _experts(keys: Keys, shape: Shape, *, experts: int, chosen: int) -> MixtureOfExperts:
    width = keys.integer("moe_intermediate_size", default=512)
    return replace(
        mixture(keys, shape, width, experts=experts, chosen=chosen),
        shared_width=keys.integer("shared_expert_intermediate_size", default=512),
        shared_gate=True,
    )


def _hybrid(
    keys: Keys, name: str, shape: Shape, rest: tuple[Component, ...], *, fused: bool
) -> Architecture:
    """Frame the blocks: a mixer of either kind, then an MLP or experts."""
    norm = offset_rms_norm(shape.hidden)
    mixers: dict[str, Component] = {
        "linear_attention": _delta_net(keys, shape.hidden, fused=fused),
        "full_attention": _gated_attention(keys, shape.attention),
    }
    blocks = tuple(
        Block(
            sublayers=(
                Sublayer(name="mixer", component=mixers[kind], norm=norm),
                Sublayer(name="mlp", component=component, norm=norm),
            )
        )
        for kind, component in zip(_kinds(keys, shape.layers, mixers), rest, strict=True)
    )
    return decoder(keys, name, shape, blocks, norm)


def _kinds(keys: Keys, layers: int, known: dict[str, Component]) -> tuple[str, ...]:
    """Return each layer's kind: as listed, else every `full_attention_interval`-th attends."""
    kinds = keys.texts("layer_types", default=None)
    if kinds is None:
        interval = keys.integer("full_attention_interval", default=4)
        return tuple(
            "linear_attention" if (layer + 1) % interval else "full_attention"
            for layer in range(layers)
        )
    if len(kinds) != layers or not known.keys() >= set(kinds):
        remedy = f"write one of {', '.join(known)} for each of the {layers} layers"
        raise keys.fault("layer_types", kinds, remedy)
    return kinds


def _gated_attention(keys: Keys, attention: Attention) -> Attention:
    """Normalise queries and keys, gate the output, rotate a quarter of each head."""
    bias = keys.flag("attention_bias", default=False)
    inner = keys.nested("rope_parameters")
    share = keys.number("partial_rotary_factor", default=0.25)
    share = inner.number("partial_rotary_factor", default=share)
    norm = offset_rms_norm(attention.head_dim)
    return replace(
        attention,
        query_norm=norm,
        key_norm=norm,
        gated=True,
        qkv_bias=bias,
        output_bias=bias,
        rotary_dim=int(share * attention.head_dim),
    )


def _delta_net(keys: Keys, hidden: int, *, fused: bool) -> GatedDeltaNet:
    return GatedDeltaNet(
        hidden=hidden,
        key_heads=keys.integer("linear_num_key_heads", default=16),
        value_heads=keys.integer("linear_num_value_heads", default=32),
        key_dim=keys.integer("linear_key_head_dim", default=128),
        value_dim=keys.integer("linear_value_head_dim", default=128),
        kernel=keys.integer("linear_conv_kernel_dim", default=4),
        fused=fused,
    )


RULES: Final = {
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_5,
    "qwen3_5_moe_text": qwen3_5_moe,
}
