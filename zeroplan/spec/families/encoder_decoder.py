"""Encoder-decoders: T5 and its relatives, BART and mBART, Whisper."""

from typing import Final

from zeroplan.records import dataclass, replace
from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Embedding,
    Head,
    Mlp,
    Projection,
    Stack,
    Sublayer,
)
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.shape import layer_norm, rms_norm
from zeroplan.spec.families.towers import both_ways, plain_mlp
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

ACTIVATIONS: Final = {"gated-gelu": "gelu_new"}
"""What T5Config makes of a `feed_forward_proj`."""

LEARNED_OFFSET: Final = 2
"""Rows that BART's position tables have above the positions (BartLearnedPositionalEmbedding)."""


def t5(keys: Keys, name: str) -> Architecture:
    """T5 (transformers 5.24, T5Config): one relative-position table per stack."""
    return _t5(keys, name, vocabulary=32_128, layers=6, heads=8, width=2048, kind="relu")


def mt5(keys: Keys, name: str) -> Architecture:
    """mT5 (transformers 5.24, MT5Config)."""
    return _t5(keys, name, vocabulary=250_112, layers=8, heads=6, width=1024, kind="gated-gelu")


def umt5(keys: Keys, name: str) -> Architecture:
    """UMT5 (transformers 5.24, UMT5Config): every block has its own relative-position table."""
    found = mt5(keys, name)
    stacks = tuple(
        replace(s, blocks=(_with_own_bias(s.blocks[0]),) * len(s.blocks)) for s in found.stacks
    )
    return replace(found, stacks=stacks)


def _with_own_bias(block: Block) -> Block:
    parts = (
        replace(part, component=replace(part.component, shares_bias=False))
        if isinstance(part.component, Attention)
        else part
        for part in block.sublayers
    )
    return replace(block, sublayers=tuple(parts))


def _t5(
    keys: Keys, name: str, *, vocabulary: int, layers: int, heads: int, width: int, kind: str
) -> Architecture:
    hidden = keys.integer("d_model", default=512)
    heads = keys.integer("num_heads", default=heads)
    projection = keys.text("feed_forward_proj", default=kind)
    dropout = keys.number("dropout_rate", default=0.1) > 0
    attention = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=keys.integer("d_kv", default=64),
        position="relative",
        shares_bias=True,
        causal=False,
        dropout=dropout,
    )
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("d_ff", default=width),
        gated=projection.startswith("gated-"),
        activation=ACTIVATIONS.get(projection, projection.removeprefix("gated-")),
        dropout=dropout,
        inner_dropout=dropout,
    )
    encoder_layers = keys.integer("num_layers", default=layers, maximum=MAX_LAYERS)
    decoder_layers = keys.integer("num_decoder_layers", default=encoder_layers, maximum=MAX_LAYERS)
    buckets = keys.integer("relative_attention_num_buckets", default=32)
    table = Embedding(
        name="embedding", rows=keys.integer("vocab_size", default=vocabulary), width=hidden
    )
    stacks = tuple(
        _t5_stack(side, table, (attention, mlp), buckets=buckets, layers=layers)
        for side, layers in (("encoder", encoder_layers), ("decoder", decoder_layers))
    )
    if keys.class_name.endswith("EncoderModel"):
        return _architecture(keys, name, stacks[:1], tied=None)
    # the class of transformers 5.24 always ties; checkpoints of v1.1 hold a head of their own
    return _architecture(keys, name, stacks, tied=keys.flag("tie_word_embeddings", default=True))


def _t5_stack(
    name: str, table: Embedding, parts: tuple[Attention, Mlp], *, buckets: int, layers: int
) -> Stack:
    """Return an encoder, or a decoder with cross-attention; the first block has the table."""
    attention, mlp = parts
    norm = replace(rms_norm(table.width), scales_input=True)
    decodes = name == "decoder"
    own = replace(attention, causal=decodes)
    crossed = replace(attention, memory_width=table.width)
    rest = (
        *((Sublayer(name="cross_attention", component=crossed, norm=norm),) if decodes else ()),
        Sublayer(name="mlp", component=mlp, norm=norm),
    )
    first, other = (
        Block(sublayers=(Sublayer(name="attention", component=part, norm=norm), *rest))
        for part in (replace(own, relative_buckets=buckets), own)
    )
    return Stack(
        name=name,
        kind="decoder" if decodes else "encoder",
        hidden=table.width,
        embeddings=(replace(table, tied=decodes),),
        blocks=(first, *(other,) * (layers - 1)),
        final_norm=norm,
        dropout=mlp.dropout,
        final_dropout=mlp.dropout,
    )


def bart(keys: Keys, name: str) -> Architecture:
    """BART (transformers 5.24, BartConfig): normalises sums, learned positions."""
    return _bart(keys, name, post_norm=True)


def mbart(keys: Keys, name: str) -> Architecture:
    """Return mBART (transformers 5.24, MBartConfig): normalises inputs, and both stacks at the end."""
    return _bart(keys, name, post_norm=False)


def _bart(keys: Keys, name: str, *, post_norm: bool) -> Architecture:
    hidden = keys.integer("d_model", default=1024)
    norm = layer_norm(hidden)
    token = Embedding(
        name="embedding", rows=keys.integer("vocab_size", default=50_265), width=hidden
    )
    positions = keys.integer("max_position_embeddings", default=1024)
    rows = positions + LEARNED_OFFSET
    place = Embedding(name="positions", rows=rows, width=hidden, kind="position")
    encoder, decoder = (
        Stack(
            name=side,
            kind="decoder" if side == "decoder" else "encoder",
            hidden=hidden,
            embeddings=(replace(token, tied=side == "decoder"), place),
            embedding_norm=norm,
            dropout=_drops(keys, _BART),
            blocks=_blocks(keys, hidden, side, replace(_BART, post_norm=post_norm)),
            final_norm=None if post_norm else norm,
        )
        for side in ("encoder", "decoder")
    )
    tied = keys.flag("tie_word_embeddings", default=True)
    return _architecture(keys, name, (encoder, decoder), tied=tied, max_positions=positions)


def whisper(keys: Keys, name: str) -> Architecture:
    """Whisper (transformers 5.24, WhisperConfig): two convolutions halve the mel frames."""
    hidden = keys.integer("d_model", default=384)
    frames = keys.integer("max_source_positions", default=1500)
    mel = keys.integer("num_mel_bins", default=80)
    norm = layer_norm(hidden)
    stem = Projection(name="conv1", widths=(mel, hidden), kernel=(3,), activation="gelu")
    place = Embedding(name="positions", rows=frames, width=hidden, kind="position")
    encoder = Stack(
        name="encoder",
        kind="audio",
        hidden=hidden,
        embeddings=(replace(place, trainable=False),),
        stem=(
            replace(stem, rate=(2, 1)),  # before the second convolution's stride
            replace(stem, name="conv2", widths=(hidden, hidden)),
        ),
        dropout=_drops(keys, _WHISPER),
        blocks=_blocks(keys, hidden, "encoder", _WHISPER),
        final_norm=norm,
        positions=frames,
    )
    rows = keys.integer("max_target_positions", default=448)
    token = Embedding(
        name="embedding", rows=keys.integer("vocab_size", default=51_865), width=hidden
    )
    decoder = Stack(
        name="decoder",
        hidden=hidden,
        embeddings=(token, replace(place, rows=rows)),
        dropout=_drops(keys, _WHISPER),
        blocks=_blocks(keys, hidden, "decoder", replace(_WHISPER, frames=frames)),
        final_norm=norm,
    )
    tied = keys.flag("tie_word_embeddings", default=True)
    return _architecture(keys, name, (encoder, decoder), tied=tied, max_positions=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """What the blocks of BART's descendants differ in; the sizes are a class's defaults."""

    layers: int
    heads: int
    width: int
    post_norm: bool = False
    key_bias: bool = True
    dropout: float = 0.1
    frames: int | None = None
    """Positions of the encoder; None: as many as the decoder's. [tokens]"""


_BART: Final = _Sides(layers=12, heads=16, width=4096)
_WHISPER: Final = _Sides(layers=4, heads=6, width=1536, key_bias=False, dropout=0.0)


def _drops(keys: Keys, given: _Sides) -> bool:
    found: float = keys.number("dropout", default=given.dropout)
    return found > 0


def _blocks(keys: Keys, hidden: int, side: str, given: _Sides) -> tuple[Block, ...]:
    """Return one side's blocks, from its `encoder_` or `decoder_` keys."""
    dropout = _drops(keys, given)
    heads = keys.integer(f"{side}_attention_heads", default=given.heads)
    attention = replace(
        both_ways(keys, hidden, heads),
        key_bias=given.key_bias,
        dropout=dropout,
        causal=side == "decoder",
    )
    activation = keys.text("activation_function", default="gelu")
    mlp = plain_mlp(hidden, keys.integer(f"{side}_ffn_dim", default=given.width), activation)
    parts: dict[str, Attention | Mlp] = {"attention": attention}
    if side == "decoder":
        parts["cross_attention"] = replace(
            attention, causal=False, memory_width=hidden, memory_positions=given.frames
        )
    parts["mlp"] = replace(mlp, dropout=dropout)
    norm = layer_norm(hidden)
    sublayers = (
        Sublayer(
            name=part,
            component=component,
            norm=None if given.post_norm else norm,
            residual_norm=norm if given.post_norm else None,
        )
        for part, component in parts.items()
    )
    depth = keys.integer(f"{side}_layers", default=given.layers, maximum=MAX_LAYERS)
    return (Block(sublayers=tuple(sublayers)),) * depth


def _architecture(
    keys: Keys,
    name: str,
    stacks: tuple[Stack, ...],
    *,
    tied: bool | None,
    max_positions: int | None = None,
) -> Architecture:
    """Frame the stacks; `tied` is None where the class has no vocabulary head."""
    table = stacks[-1].embeddings[0]
    bare = tied is None or keys.class_name.endswith(("T5Model", "BartModel", "WhisperModel"))
    return Architecture(
        name=name,
        model_type=keys.model_type,
        class_name=keys.class_name,
        stacks=stacks,
        head=None if bare else Head(hidden=table.width, rows=table.rows, tied=bool(tied)),
        max_positions=max_positions,
        source=keys.place,
    )


RULES: Final = {
    "t5": t5,
    "mt5": mt5,
    "umt5": umt5,
    "bart": bart,
    "mbart": mbart,
    "whisper": whisper,
}
