"""A model that no rule knows: counted as a Llama-like decoder, with every assumption said aloud.

What the generic decoder does not have (a second tower, recurrent layers, experts whose number or
width the file does not tell) is refused instead of left out.
"""

import re
from dataclasses import replace
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.spec.architecture import Architecture, Attention, Mlp
from zeroplan.spec.families.common import MAX_LAYERS, head_width
from zeroplan.spec.families.deepseek import deepseek_v3
from zeroplan.spec.families.experts import (
    EXPERT_COUNT_NAMES,
    leading_dense,
    mixture,
    shared_width,
    sparse_decoder,
)
from zeroplan.spec.families.shape import Shape, uniform
from zeroplan.spec.keys import REQUIRED, Keys

__all__ = ["RULES"]

HIDDEN: Final = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS: Final = ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv")
WIDTH: Final = ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff")
VOCABULARY: Final = ("vocab_size", "padded_vocab_size")
POSITIONS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")

FOREIGN: Final = re.compile(
    r"(text|llm|language|vision|audio|encoder|decoder)_config$|^(encoder|decoder)_layers$"
    r"|mamba|^ssm_|^d_state$|^state_size$|^linear_(attn|num|key|value)|^block_configs$"
    r"|^attn_type_list$|^layers_block_type$|^block_types$|^conv_|^lru_"
    r"|^type_vocab_size$|^relative_attention$|^pos_att_type$"
)
"""Keys of parts that a plain decoder does not have."""


def generic(keys: Keys, name: str) -> Architecture:
    """Count an unknown model from decoder-like keys."""
    _refuse_foreign(keys)
    if keys.has("kv_lora_rank"):
        return _said(keys, deepseek_v3(keys, name), "latent attention as in DeepSeek-V3")
    shape = _shape(keys)
    if any(keys.has(name) for name in EXPERT_COUNT_NAMES):
        return _said(keys, _sparse(keys, name, shape), "experts in the feed-forward layers")
    return _said(keys, uniform(keys, name, shape), "a dense feed-forward layer")


def _refuse_foreign(keys: Keys) -> None:
    if keys.flag("is_encoder_decoder", default=False):
        raise keys.fault("is_encoder_decoder", True, _no_rule(keys))  # noqa: FBT003 the file's own
    for name, value in keys.mapping.items():
        if FOREIGN.search(name) and value:
            raise keys.fault(name, value, _no_rule(keys))


def _no_rule(keys: Keys) -> str:
    return f"no rule knows model_type {keys.model_type!r}, and a plain decoder has no such part"


def _shape(keys: Keys) -> Shape:
    """Read sizes under the names that are in use; those that a guess would falsify are required."""
    _require(keys, HIDDEN, LAYERS, HEADS, WIDTH, VOCABULARY)
    hidden = keys.integer(*HIDDEN)
    heads = keys.integer(*HEADS)
    kv_heads = keys.integer(*KV_HEADS, default=heads)
    if heads % kv_heads:
        raise keys.fault(KV_HEADS[0], kv_heads, f"it divides the {heads} heads")
    bias = keys.flag("attention_bias", "bias", "use_bias", default=False)
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_width(keys, hidden, heads),
        qkv_bias=keys.flag("qkv_bias", "use_qkv_bias", default=bias),
        output_bias=bias,
    )
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer(*WIDTH),
        activation=keys.text("hidden_act", default="silu"),
        bias=keys.flag("mlp_bias", default=False),
    )
    return Shape(
        hidden=hidden,
        layers=keys.integer(*LAYERS, maximum=MAX_LAYERS),
        vocabulary=keys.integer(*VOCABULARY),
        positions=keys.integer(*POSITIONS, default=None),
        tied=keys.flag("tie_word_embeddings", default=False),
        attention=attention,
        mlp=mlp,
    )


def _require(keys: Keys, *wanted: tuple[str, ...]) -> None:
    """Name every missing key at once, not the first of them."""
    missing = [names[0] for names in wanted if not any(keys.has(name) for name in names)]
    if missing:
        raise SpecError(
            f"{keys.place}: no rule knows model_type {keys.model_type!r}, and to be counted as a"
            f" generic decoder it lacks {', '.join(map(repr, missing))}"
        )


def _sparse(keys: Keys, name: str, shape: Shape) -> Architecture:
    """Count experts, whose number per token the file must tell."""
    width = keys.integer(
        "moe_intermediate_size", "expert_intermediate_size", default=shape.mlp.width
    )
    experts = replace(
        mixture(keys, shape, width, experts=REQUIRED, chosen=REQUIRED),
        shared_width=shared_width(keys, width, 0),
    )
    return sparse_decoder(keys, name, shape, experts, leading_dense(keys, shape.layers, 0))


def _said(keys: Keys, found: Architecture, feed_forward: str) -> Architecture:
    """Say what was assumed, and which keys nobody read."""
    unread = sorted(set(keys.mapping) - keys.used)
    assumed = (
        f"NO RULE KNOWS model_type {keys.model_type!r}: counted as a generic decoder with"
        f" {feed_forward}, gated, with RMSNorms before both branches and rotary positions"
    )
    notes = (assumed, f"keys that were not read: {', '.join(unread) or 'none'}")
    return replace(found, assumptions=(*notes, *found.assumptions))


RULES: Final = {"generic": generic}
