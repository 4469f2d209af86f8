"""State-space models and hybrids: Mamba, Jamba, Bamba, Nemotron-H.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

from dataclasses import replace
from typing import Final

from zeroplan.errors import perhaps
from zeroplan.spec.architecture import Architecture, Attention, Block, Component, Mlp, Sublayer
from zeroplan.spec.families.common import MAX_LAYERS, causal_lm
from zeroplan.spec.families.experts import EXPERT_COUNT_NAMES, mixture, sigmoid_router
from zeroplan.spec.families.shape import Defaults, decoder, read_shape, rms_norm
from zeroplan.spec.keys import Keys
from zeroplan.spec.mixers import Mamba, Mamba2
from zeroplan.spec.moe import MixtureOfExperts, Router

__all__ = ["RULES"]


def mamba(keys: Keys, name: str) -> Architecture:
    """MambaConfig and FalconMambaConfig: every block is one mixer."""
    hidden = keys.integer("hidden_size", "d_model", default=768)
    expanded = int(keys.number("expand", default=2.0) * hidden)
    mixer = Mamba(
        hidden=hidden,
        inner=keys.integer("intermediate_size", default=expanded),
        state=keys.integer("state_size", default=16),
        kernel=keys.integer("conv_kernel", default=4),
        time_step_rank=_rank(keys, "time_step_rank", hidden),
        bias=keys.flag("use_bias", default=False),
        conv_bias=keys.flag("use_conv_bias", default=True),
    )
    layers = keys.integer("num_hidden_layers", "n_layer", default=32, maximum=MAX_LAYERS)
    return _mixers_only(keys, name, mixer, layers, tied=True)


def mamba2(keys: Keys, name: str) -> Architecture:
    """Mamba2Config: every block is one mixer."""
    hidden = keys.integer("hidden_size", "d_model", default=4096)
    mixer = Mamba2(
        hidden=hidden,
        inner=int(keys.number("expand", default=2.0) * hidden),
        heads=keys.integer("num_heads", default=128),
        groups=keys.integer("n_groups", default=8),
        state=keys.integer("state_size", default=128),
        kernel=keys.integer("conv_kernel", default=4),
        chunk=keys.integer("chunk_size", default=256),
        bias=keys.flag("use_bias", default=False),
        conv_bias=keys.flag("use_conv_bias", default=True),
    )
    layers = keys.integer("num_hidden_layers", "n_layer", default=64, maximum=MAX_LAYERS)
    return _mixers_only(keys, name, mixer, layers, tied=False)


def _mixers_only(
    keys: Keys, name: str, mixer: Mamba | Mamba2, layers: int, *, tied: bool
) -> Architecture:
    return causal_lm(
        keys,
        name,
        hidden=mixer.hidden,
        blocks=(_block(mixer.hidden, mixer),) * layers,
        final_norm=rms_norm(mixer.hidden),
        tied=keys.flag("tie_word_embeddings", default=tied),
        max_positions=None,
    )


def jamba(keys: Keys, name: str) -> Architecture:
    """JambaConfig: attention every 8th layer, experts every 2nd, no positions at all."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=65_536,
            hidden=4096,
            width=14_336,
            layers=32,
            heads=32,
            kv_heads=8,
            positions=262_144,
        ),
    )
    mixer = Mamba(
        hidden=shape.hidden,
        inner=keys.integer("mamba_expand", default=2) * shape.hidden,
        state=keys.integer("mamba_d_state", default=16),
        kernel=keys.integer("mamba_d_conv", default=4),
        time_step_rank=_rank(keys, "mamba_dt_rank", shape.hidden),
        bias=keys.flag("mamba_proj_bias", default=False),
        conv_bias=keys.flag("mamba_conv_bias", default=True),
        inner_norms=True,
    )
    attention = replace(shape.attention, position="none")
    attends = _every(keys, "attn_layer", period=8, offset=4, layers=shape.layers)
    chooses = _every(keys, "expert_layer", period=2, offset=1, layers=shape.layers)
    experts: Component = replace(
        mixture(keys, shape, shape.mlp.width, experts=16, chosen=2),
        router=Router(normalised=False),
    )
    if keys.integer(*EXPERT_COUNT_NAMES, default=16) == 1:
        experts = shape.mlp
    blocks = tuple(
        _block(
            shape.hidden,
            attention if layer in attends else mixer,
            experts if layer in chooses else shape.mlp,
        )
        for layer in range(shape.layers)
    )
    return decoder(keys, name, shape, blocks, rms_norm(shape.hidden))


def bamba(keys: Keys, name: str) -> Architecture:
    """BambaConfig: Mamba-2 mixers, attention in the layers that the file lists."""
    shape = read_shape(
        keys,
        Defaults(
            vocabulary=128_000,
            hidden=4096,
            width=14_336,
            layers=32,
            heads=32,
            kv_heads=8,
            positions=262_144,
        ),
    )
    mixer = Mamba2(
        hidden=shape.hidden,
        inner=keys.integer("mamba_expand", default=2) * shape.hidden,
        heads=keys.integer("mamba_n_heads", default=128),
        groups=keys.integer("mamba_n_groups", default=1),
        state=keys.integer("mamba_d_state", default=256),
        kernel=keys.integer("mamba_d_conv", default=4),
        chunk=keys.integer("mamba_chunk_size", default=256),
        bias=keys.flag("mamba_proj_bias", default=False),
        conv_bias=keys.flag("mamba_conv_bias", default=True),
    )
    bias = keys.flag("attention_bias", default=False)
    attention = replace(
        shape.attention,
        qkv_bias=bias,
        output_bias=bias,
        rotary_dim=shape.attention.head_dim // 2,
    )
    mlp = replace(shape.mlp, bias=keys.flag("mlp_bias", default=False))
    attends = keys.integers("attn_layer_indices", default=())
    blocks = tuple(
        _block(shape.hidden, attention if layer in attends else mixer, mlp)
        for layer in range(shape.layers)
    )
    return decoder(keys, name, shape, blocks, rms_norm(shape.hidden))


def nemotron_h(keys: Keys, name: str) -> Architecture:
    """NemotronHConfig: one mixer a block, by `hybrid_override_pattern` or `layers_block_type`.

    As in the class, attention has neither positions nor biases, whatever the file says.
    """
    hidden = keys.integer("hidden_size", default=4096)
    mlp = _nemotron_mlp(keys, hidden)
    parts: dict[str, Component] = {
        "mamba": _nemotron_mixer(keys, hidden),
        "attention": _nemotron_attention(keys, hidden),
        "mlp": mlp,
    }
    kinds = _nemotron_kinds(keys)
    keys.mentions("n_routed_experts")  # newer files state it for models without experts too
    if "moe" in kinds:
        parts["moe"] = _nemotron_experts(keys, mlp)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=tuple(_block(hidden, parts[kind]) for kind in kinds),
        final_norm=rms_norm(hidden),
        tied=False,
        max_positions=keys.integer("max_position_embeddings", default=4096),
    )


def _nemotron_mixer(keys: Keys, hidden: int) -> Mamba2:
    heads = keys.integer("mamba_num_heads", default=128)
    return Mamba2(
        hidden=hidden,
        inner=heads * keys.integer("mamba_head_dim", default=64),
        heads=heads,
        groups=keys.integer("n_groups", "mamba_n_groups", default=8),
        state=keys.integer("ssm_state_size", default=128),
        kernel=keys.integer("conv_kernel", "mamba_d_conv", default=4),
        chunk=keys.integer("chunk_size", "mamba_chunk_size", default=128),
        bias=keys.flag("use_bias", default=False),
        conv_bias=keys.flag("use_conv_bias", "mamba_conv_bias", default=True),
    )


def _nemotron_attention(keys: Keys, hidden: int) -> Attention:
    heads = keys.integer("num_attention_heads", default=32)
    kv_heads = keys.integer("num_key_value_heads", default=8)
    if heads % kv_heads:
        raise keys.fault("num_key_value_heads", kv_heads, f"it divides the {heads} heads")
    head_dim = keys.integer("head_dim", "attention_head_dim", default=128)
    return Attention(
        hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, position="none"
    )


def _nemotron_mlp(keys: Keys, hidden: int) -> Mlp:
    return Mlp(
        hidden=hidden,
        width=keys.integer("intermediate_size", default=21_504),
        gated=False,
        activation=keys.text("mlp_hidden_act", default="relu2"),
        bias=keys.flag("mlp_bias", default=False),
    )


def _nemotron_experts(keys: Keys, mlp: Mlp) -> MixtureOfExperts:
    """Nemotron 3: plain experts, in the larger models between a narrower pair of projections."""
    experts = keys.integer("n_routed_experts", "num_local_experts", default=8)
    return MixtureOfExperts(
        hidden=mlp.hidden,
        experts=experts,
        experts_per_token=keys.integer("num_experts_per_tok", default=2, maximum=experts),
        width=keys.integer("moe_intermediate_size", default=7688),
        gated=False,
        activation=mlp.activation,
        router=sigmoid_router(keys, normalised=True),
        shared_width=keys.integer("moe_shared_expert_intermediate_size", default=7688),
        shared_bias=mlp.bias,
        latent_width=keys.integer("moe_latent_size", default=None),
        latent_bias=mlp.bias,
    )


PATTERN: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Letters of `hybrid_override_pattern` (transformers 5.24, NemotronHConfig._pattern_to_list)."""

RENAMED: Final = {"linear_attention": "mamba", "full_attention": "attention"}
"""How newer files call two of the kinds."""


def _nemotron_kinds(keys: Keys) -> tuple[str, ...]:
    """Return what each block is; the list decides on the depth, not `num_hidden_layers`."""
    kinds = keys.texts("layers_block_type", "layer_types", default=None)
    pattern = keys.text("hybrid_override_pattern", default=None)
    if kinds is None and pattern is not None:
        unknown = set(pattern) - set(PATTERN)
        if unknown:
            raise keys.fault("hybrid_override_pattern", pattern, "write letters of M, *, - and E")
        kinds = tuple(PATTERN[letter] for letter in pattern)
    if kinds is None:
        raise keys.fault("hybrid_override_pattern", None, "say which mixer each block holds")
    kinds = tuple(RENAMED.get(kind, kind) for kind in kinds)
    for kind in kinds:
        if kind not in PATTERN.values():
            known = ", ".join(PATTERN.values())
            remedy = f"kinds are {known}.{perhaps(kind, PATTERN.values())}"
            raise keys.fault("layers_block_type", kind, remedy)
    return kinds


def _rank(keys: Keys, name: str, hidden: int) -> int:
    """Return the rank of the time step: by default, and for "auto", hidden / 16 rounded up."""
    if keys.mapping.get(name) == "auto":
        return -(-hidden // 16)
    rank: int = keys.integer(name, default=-(-hidden // 16))
    return rank


def _every(keys: Keys, name: str, *, period: int, offset: int, layers: int) -> range:
    """Return the layers that `<name>_period` and `<name>_offset` choose."""
    period = keys.integer(f"{name}_period", default=period)
    offset = keys.integer(f"{name}_offset", default=offset, minimum=0)
    if offset >= period:
        raise keys.fault(f"{name}_offset", offset, f"it is below the period {period}")
    return range(offset, layers, period)


def _block(hidden: int, *components: Component) -> Block:
    """Return a block whose components each normalise their input."""
    norm = rms_norm(hidden)
    names = ("mixer", "mlp")[: len(components)]
    return Block(
        sublayers=tuple(
            Sublayer(name=name, component=component, norm=norm)
            for name, component in zip(names, components, strict=True)
        )
    )


RULES: Final = {
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
    "bamba": bamba,
    "nemotron_h": nemotron_h,
}
