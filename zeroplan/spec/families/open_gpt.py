"""The open answers to GPT-3: OPT, BLOOM, Falcon and MPT, with the old names of their keys.

Defaults and parameters are those of transformers 5.24 unless a rule names another source.
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
    Position,
    Projection,
    Sublayer,
)
from zeroplan.spec.families.common import causal_lm, layers, own_heads
from zeroplan.spec.families.shape import layer_norm, pre_norm
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

OPT_OFFSET: Final = 2
"""Rows that the position table has before the first position (`OPTLearnedPositionalEmbedding`)."""


def opt(keys: Keys, name: str) -> Architecture:
    """OPT: learned positions; the 350M narrows its embedding and norms late (`OPTConfig`)."""
    hidden = keys.integer("hidden_size")
    bias = keys.flag("enable_bias", default=True)
    affine = keys.flag("layer_norm_elementwise_affine", default=True)
    norm = layer_norm(hidden, weight=affine, bias=affine)
    early = keys.flag("do_layer_norm_before", default=True)
    attention = replace(
        own_heads(keys, hidden, position="learned"),
        qkv_bias=bias,
        output_bias=bias,
    )
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("ffn_dim"),
        gated=False,
        activation=keys.text("activation_function", default="relu"),
        bias=bias,
    )
    positions = keys.integer("max_position_embeddings", default=2048)
    last = early and not keys.flag("_remove_final_layer_norm", default=False)
    found = causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys)
        * (pre_norm(norm, attention, mlp) if early else _late_norm(norm, attention, mlp),),
        final_norm=norm if last else None,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=positions,
        tables=(
            Embedding(name="positions", rows=positions + OPT_OFFSET, width=hidden, kind="position"),
        ),
    )
    return _narrowed(found, keys.integer("word_embed_proj_dim", default=hidden))


def _narrowed(model: Architecture, width: int) -> Architecture:
    """Return the model with an embedding and a head of another width, and projections to them."""
    (stack,), head = model.stacks, model.head
    if head is None or width == stack.hidden:
        return model
    tokens, *others = stack.embeddings
    into = Projection(name="project_in", widths=(width, stack.hidden), bias=False)
    out = Projection(name="project_out", widths=(stack.hidden, width), bias=False)
    tokens = replace(tokens, width=width, projection=into)
    stack = replace(stack, embeddings=(tokens, *others), tail=(out,))
    return replace(model, stacks=(stack,), head=replace(head, hidden=width))


def _late_norm(norm: Norm, attention: Attention, mlp: Mlp) -> Block:
    return Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=None, residual_norm=norm),
            Sublayer(name="mlp", component=mlp, norm=None, residual_norm=norm),
        )
    )


def bloom(keys: Keys, name: str) -> Architecture:
    """BLOOM: ALiBi, a norm on the embedding (`BloomConfig`)."""
    hidden = keys.integer("n_embed", "hidden_size")
    attention = replace(
        own_heads(keys, hidden, "n_head", position="alibi"),
        qkv_bias=True,
        output_bias=True,
        fused_qkv=True,
    )
    mlp = Mlp(hidden=hidden, width=4 * hidden, gated=False, activation="gelu", bias=True)
    norm = layer_norm(hidden)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys, "n_layer") * (pre_norm(norm, attention, mlp),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=keys.integer("seq_length", default=None),
        embedding_norm=norm,
    )


def falcon(keys: Keys, name: str) -> Architecture:
    """Falcon (`FalconConfig`), and the names and rules of its first files.

    `RefinedWeb` (40B) always is the newer block, `RefinedWebModel` (7B, 1B) always the older one
    (`modelling_RW.py` beside the weights).
    """
    hidden = keys.integer("hidden_size", "n_embed")
    newer = keys.flag("new_decoder_architecture", default=keys.model_type == "RefinedWeb")
    bias = keys.flag("bias", default=False)
    attention = replace(
        own_heads(
            keys,
            hidden,
            "n_head",
            position="alibi" if keys.flag("alibi", default=False) else "rope",
        ),
        qkv_bias=bias,
        output_bias=bias,
        fused_qkv=True,
    )
    attention = replace(attention, kv_heads=_falcon_kv_heads(keys, attention.heads, newer=newer))
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("ffn_hidden_size", default=4 * hidden),
        gated=False,
        activation=keys.text("activation", default="gelu"),
        bias=bias,
    )
    norm = layer_norm(hidden)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys, "n_layer")
        * (_falcon_block(keys, pre_norm(norm, attention, mlp), newer=newer),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=keys.integer("max_position_embeddings", default=2048),
    )


def _falcon_kv_heads(keys: Keys, heads: int, *, newer: bool) -> int:
    """Return the key-value heads: the count is only believed for the newer block."""
    if newer:
        return keys.integer("num_kv_heads", "n_head_kv", default=heads)
    return 1 if keys.flag("multi_query", default=True) else heads


def _falcon_block(keys: Keys, block: Block, *, newer: bool) -> Block:
    """Arrange the branches: in a row, side by side with two norms, or side by side with one."""
    norms = keys.integer("num_ln_in_parallel_attn", default=2 if newer else 1)
    if not keys.flag("parallel_attn", default=True):
        return block
    if newer and norms == 2:  # noqa: PLR2004 one norm for each branch
        return replace(block, parallel=True)
    attention, mlp = block.sublayers
    return Block(sublayers=(attention, replace(mlp, norm=None)), parallel=True, shared_norm=True)


def mpt(keys: Keys, name: str) -> Architecture:
    """MPT: no biases, ALiBi, the width as a ratio (`MPTConfig` of llm-foundry)."""
    hidden = keys.integer("d_model", "hidden_size")
    bias = not keys.flag("no_bias", default=True)
    inner = keys.nested("attn_config")
    rotary = inner.flag("rope", default=False)
    alibi = inner.flag("alibi", default=not rotary)
    learned = keys.flag("learned_pos_emb", default=True) and not (alibi or rotary)
    position: Position = "alibi" if alibi else "rope" if rotary else "learned"
    attention = own_heads(keys, hidden, "n_heads", position=position)
    attention = replace(
        attention,
        kv_heads=_mpt_kv_heads(inner, attention.heads),
        qkv_bias=bias,
        output_bias=bias,
        fused_qkv=True,
    )
    ratio = keys.number("expansion_ratio", default=4)
    mlp = Mlp(hidden=hidden, width=int(ratio * hidden), gated=False, activation="gelu", bias=bias)
    norm = layer_norm(hidden, bias=bias)
    rows = keys.integer("max_seq_len", default=2048)
    table = Embedding(name="positions", rows=rows, width=hidden, kind="position")
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys, "n_layers") * (pre_norm(norm, attention, mlp),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=rows,
        tables=(table,) if learned else (),
    )


def _mpt_kv_heads(keys: Keys, heads: int) -> int:
    kind = keys.text("attn_type", default="multihead_attention")
    if kind == "grouped_query_attention":
        return keys.integer("kv_n_heads")
    return 1 if kind == "multiquery_attention" else heads


RULES: Final = {
    "RefinedWeb": falcon,
    "RefinedWebModel": falcon,
    "bloom": bloom,
    "falcon": falcon,
    "mpt": mpt,
    "opt": opt,
}
