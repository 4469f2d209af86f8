"""Decoders whose branches can stand side by side: Phi 1 to 2, StableLM.

Defaults are those of the configuration classes of transformers 5.24; what is published beside
older weights is named.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention, Block, Mlp, Norm, Sublayer
from zeroplan.spec.families.common import MAX_LAYERS, causal_lm
from zeroplan.spec.families.shape import Defaults, decoder, layer_norm, read_shape, uniform
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

PHI: Final = Defaults(
    vocabulary=51_200,
    hidden=2048,
    width=8192,
    layers=24,
    heads=32,
    positions=2048,
    activation="gelu_new",
)
STABLELM: Final = Defaults(
    vocabulary=50_304,
    hidden=2560,
    width=6912,
    layers=32,
    heads=32,
    kv_heads=32,
    positions=4096,
)


def phi(keys: Keys, name: str) -> Architecture:
    """Phi 1, 1.5 and 2 (`PhiConfig`): both branches read one LayerNorm, biases everywhere."""
    shape = read_shape(keys, PHI)
    attention = _partly_rotated(keys, shape.attention, 0.5)
    attention = replace(attention, qkv_bias=True, output_bias=True)
    if keys.flag("qk_layernorm", default=False):
        norm = layer_norm(attention.head_dim)
        attention = replace(attention, query_norm=norm, key_norm=norm)
    mlp = replace(shape.mlp, gated=False, bias=True)
    norm = layer_norm(shape.hidden)
    return causal_lm(
        keys,
        name,
        hidden=shape.hidden,
        blocks=shape.layers * (_side_by_side(norm, attention, mlp),),
        final_norm=norm,
        tied=shape.tied,
        head_bias=True,
        max_positions=shape.positions,
    )


def phi_msft(keys: Keys, name: str) -> Architecture:
    """Phi under the names of its first release (`modeling_phi.py` beside the weights)."""
    hidden = keys.integer("n_embd")
    heads = keys.integer("n_head")
    if hidden % heads:
        raise keys.fault("n_head", heads, f"it divides the hidden size {hidden}")
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=keys.integer("n_head_kv", default=heads, maximum=heads),
        head_dim=hidden // heads,
        rotary_dim=keys.integer("rotary_dim", default=32),
        qkv_bias=True,
        output_bias=True,
        fused_qkv=True,
    )
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("n_inner", default=4 * hidden),
        gated=False,
        activation=keys.text("activation_function", default="gelu_new"),
        bias=True,
    )
    norm = layer_norm(hidden)
    depth = keys.integer("n_layer", maximum=MAX_LAYERS)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=depth * (_side_by_side(norm, attention, mlp),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=False),
        head_bias=True,
        max_positions=keys.integer("n_positions", default=2048),
    )


def stablelm(keys: Keys, name: str) -> Architecture:
    """StableLM 3B to 12B (`StableLmConfig`, and `StableLMEpochConfig` beside older weights)."""
    shape = read_shape(keys, STABLELM)
    attention = _partly_rotated(keys, shape.attention, 0.25)
    attention = replace(attention, qkv_bias=keys.flag("use_qkv_bias", default=False))
    if keys.flag("qk_layernorm", default=False):
        norm = Norm(kind="layer", width=attention.head_dim)
        attention = replace(
            attention,
            query_norm=replace(norm, heads=attention.heads),
            key_norm=replace(norm, heads=attention.kv_heads),
        )
    norm = layer_norm(shape.hidden)
    if not keys.flag("use_parallel_residual", default=False):
        return uniform(keys, name, replace(shape, attention=attention), norm)
    blocks = shape.layers * (_side_by_side(norm, attention, shape.mlp),)
    return decoder(keys, name, shape, blocks, norm)


def _partly_rotated(keys: Keys, attention: Attention, default: float) -> Attention:
    share = keys.number("partial_rotary_factor", "rope_pct", default=default)
    return replace(attention, rotary_dim=int(attention.head_dim * share))


def _side_by_side(norm: Norm, attention: Attention, mlp: Mlp) -> Block:
    """Return a block whose branches read one norm and are added at once."""
    return Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=norm),
            Sublayer(name="mlp", component=mlp, norm=None),
        ),
        parallel=True,
        shared_norm=True,
    )


RULES: Final = {
    "mixformer-sequential": phi_msft,
    "phi": phi,
    "phi-msft": phi_msft,
    "stablelm": stablelm,
    "stablelm_epoch": stablelm,
}
