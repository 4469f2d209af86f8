"""What most decoder families share: heads, depth, positions, the frame around the blocks."""

from typing import Final

from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Embedding,
    Head,
    Norm,
    Position,
    Stack,
)
from zeroplan.spec.keys import Keys

__all__ = ["attention_heads", "causal_lm", "head_width", "layers", "own_heads"]

MAX_LAYERS: Final = 10_000
"""Ten times deeper than any published transformer. [count]"""


def layers(keys: Keys, *aliases: str, default: int | None = None) -> int:
    """Return the number of blocks [count]."""
    names = ("num_hidden_layers", *aliases)
    if default is None:
        return keys.integer(*names, maximum=MAX_LAYERS)
    return keys.integer(*names, default=default, maximum=MAX_LAYERS)


def attention_heads(keys: Keys, hidden: int, *aliases: str) -> tuple[int, int, int]:
    """Return heads, key-value heads and the width of a head.

    Without `num_key_value_heads` every head has its own; without `head_dim` a head is
    `hidden_size / num_attention_heads` wide.
    """
    heads = keys.integer("num_attention_heads", *aliases)
    kv_heads = keys.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise keys.fault("num_key_value_heads", kv_heads, f"it divides the {heads} heads")
    return heads, kv_heads, head_width(keys, hidden, heads)


def own_heads(keys: Keys, hidden: int, *aliases: str, position: Position = "rope") -> Attention:
    """Return an attention in which every head has its own keys and values."""
    heads = keys.integer("num_attention_heads", *aliases)
    return Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_width(keys, hidden, heads),
        position=position,
    )


def head_width(keys: Keys, hidden: int, heads: int) -> int:
    """Return the width of a head, from `head_dim` or from the hidden size [elements]."""
    if keys.has("head_dim"):
        return keys.integer("head_dim")
    if hidden % heads:
        raise keys.fault("num_attention_heads", heads, f"it divides the hidden size {hidden}")
    return hidden // heads


def causal_lm(
    keys: Keys,
    name: str,
    *,
    hidden: int,
    blocks: tuple[Block, ...],
    final_norm: Norm | None,
    tied: bool,
    max_positions: int | None,
    vocabulary: int | None = None,
    head_bias: bool = False,
    tables: tuple[Embedding, ...] = (),
    embedding_norm: Norm | None = None,
) -> Architecture:
    """Frame a decoder: token embedding (and further tables), blocks, last norm, vocabulary head.

    `vocabulary` is what the class takes where a nested object is silent.
    """
    names = ("vocab_size", "padded_vocab_size")
    rows: int = (
        keys.integer(*names) if vocabulary is None else keys.size(*names, default=vocabulary)
    )
    tokens = Embedding(name="embedding", rows=rows, width=hidden)
    stack = Stack(
        name="decoder",
        hidden=hidden,
        embeddings=(tokens, *tables),
        blocks=blocks,
        final_norm=final_norm,
        embedding_norm=embedding_norm,
    )
    return Architecture(
        name=name,
        model_type=keys.model_type,
        class_name=keys.class_name,
        stacks=(stack,),
        head=Head(hidden=hidden, rows=rows, tied=tied, bias=head_bias),
        max_positions=max_positions,
        source=keys.place,
    )
