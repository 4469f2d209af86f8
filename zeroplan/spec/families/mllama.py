"""Llama 3.2 Vision: an image tower of tiles, and cross-attention layers among Llama's own.

Defaults are those of the configuration classes of transformers 5.24, whose names the rules give.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Block, Projection, Stack, Weights
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.composite import compose
from zeroplan.spec.families.experts import head_norms
from zeroplan.spec.families.shape import (
    Defaults,
    decoder,
    layer_norm,
    pre_norm,
    read_shape,
    rms_norm,
)
from zeroplan.spec.families.towers import both_ways, grid, patch_embedding, plain_mlp
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

EXTRA_ROWS: Final = 8
"""Rows of the input table beyond the vocabulary, for the image token (MllamaTextModel)."""

ASPECT_RATIOS: Final = 8
"""Default number of `supported_aspect_ratios` (MllamaVisionConfig). [count]"""

TILE_MULTIPLE: Final = 8
"""The patches of a tile are padded to a multiple of this (MllamaVisionModel.forward)."""


def mllama(keys: Keys, name: str) -> Architecture:
    """MllamaConfig: the tower feeds keys and values of every fifth layer; nothing is tied."""
    inner = keys.nested("text_config")
    shape = read_shape(
        inner,
        Defaults(
            vocabulary=128_256,
            hidden=4096,
            width=14_336,
            layers=40,
            heads=32,
            kv_heads=8,
            positions=131_072,
        ),
    )
    tower = _tower(keys.nested("vision_config"), shape.hidden)
    crosses = inner.integers("cross_attention_layers", default=(3, 8, 13, 18, 23, 28, 33, 38))
    norm = rms_norm(shape.hidden)
    own = pre_norm(norm, shape.attention, shape.mlp)
    crossed = replace(
        head_norms(shape.attention),
        position="none",
        causal=False,
        memory_width=shape.hidden,
        memory_positions=_unpadded(tower),
    )
    cross = _gated(
        pre_norm(norm, crossed, shape.mlp), "cross_attn_attn_gate", "cross_attn_mlp_gate"
    )
    blocks = tuple(cross if layer in crosses else own for layer in range(shape.layers))
    text = decoder(inner, name, shape, blocks, norm)
    (stack,) = text.stacks
    table = replace(stack.embeddings[0], rows=stack.embeddings[0].rows + EXTRA_ROWS)
    text = replace(text, stacks=(replace(stack, embeddings=(table,)),))
    return compose(keys, tower, text, ties=False)


def _unpadded(tower: Stack) -> int:
    """Return the positions that the language model sees: patches and a class token of each tile."""
    (rows,) = (each.shape[0] for each in tower.extras if each.name == "positions.embedding")
    padded = -(-rows // TILE_MULTIPLE) * TILE_MULTIPLE
    return rows * ((tower.positions or padded) // padded)


def _gated(block: Block, *gates: str) -> Block:
    parts = zip(block.sublayers, gates, strict=True)
    return replace(block, sublayers=tuple(replace(part, gate=gate) for part, gate in parts))


def _tower(keys: Keys, text_hidden: int) -> Stack:
    """Return the tower of MllamaVisionConfig with the projector to the language model."""
    hidden = keys.integer("hidden_size", default=1280)
    heads = keys.integer("attention_heads", "num_attention_heads", default=16)
    count, patch = grid(keys, 448, 14)
    mlp = plain_mlp(
        hidden,
        keys.integer("intermediate_size", default=5120),
        keys.text("hidden_act", default="gelu"),
    )
    block = pre_norm(layer_norm(hidden), both_ways(keys, hidden, heads, bias=False), mlp)
    layers = keys.integer("num_hidden_layers", default=32, maximum=MAX_LAYERS)
    further = keys.integer("num_global_layers", default=8, maximum=MAX_LAYERS)
    tiles = keys.integer("max_num_tiles", default=4)
    positions = -(-(count + 1) // TILE_MULTIPLE) * TILE_MULTIPLE * tiles
    output = keys.integer("vision_output_dim", default=7680)
    return Stack(
        name="vision",
        kind="vision",
        hidden=hidden,
        embeddings=(),
        embedding_norm=layer_norm(hidden),
        stem=(patch_embedding(keys, hidden, patch, bias=False),),
        extras=(
            Weights(name="class_embedding", shape=(hidden,)),
            *_tile_tables(keys, hidden, tiles, count + 1),
        ),
        blocks=(block,) * layers + (_gated(block, "gate_attn", "gate_ffn"),) * further,
        final_norm=layer_norm(hidden),
        tail=(Projection(name="multi_modal_projector", widths=(output, text_hidden)),),
        positions=positions,
    )


def _tile_tables(keys: Keys, hidden: int, tiles: int, positions: int) -> tuple[Weights, ...]:
    """Return the gated tables of positions, per aspect ratio and tile (one ratio is padding)."""
    listed = keys.mapping.get("supported_aspect_ratios")
    ratios = (len(listed) if isinstance(listed, list) else ASPECT_RATIOS) + 1
    shapes = {
        "positions.gate": (1,),
        "positions.embedding": (positions, hidden),
        "positions.tile_embedding": (ratios, tiles * positions * hidden),
        "pre_tile.embedding": (ratios, tiles * hidden),
        "pre_tile.gate": (1,),
        "post_tile.embedding": (ratios, tiles * hidden),
        "post_tile.gate": (1,),
    }
    return tuple(Weights(name=name, shape=shape) for name, shape in shapes.items())


RULES: Final = {"mllama": mllama}
