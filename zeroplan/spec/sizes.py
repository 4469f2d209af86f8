"""A model given by its size alone: the newest dense Llama of that size, or a shape like it."""

import re
from collections.abc import Iterator
from math import log
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass, replace
from zeroplan.units import GIGA, MEGA, TERA

__all__ = ["NEWEST", "SizedShape", "is_size", "parameters_of_size", "shape_of_size"]

SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([mbt])", re.IGNORECASE)
SCALE: Final = {"m": MEGA, "b": GIGA, "t": TERA}

NEWEST: Final = {
    "1b": "llama-3.2-1b",
    "3b": "llama-3.2-3b",
    "7b": "llama-2-7b",
    "8b": "llama-3.1-8b",
    "13b": "llama-2-13b",
    "30b": "llama-1-30b",
    "33b": "llama-1-30b",
    "34b": "codellama-34b",
    "65b": "llama-1-65b",
    "70b": "llama-3.1-70b",
    "405b": "llama-3.1-405b",
}
"""Size: the newest dense Llama shape that was trained from scratch at it (3.3 is 3.1's shape)."""

VOCABULARY: Final = 128_256
"""Llama 3's in the released files (arXiv 2407.21783, section 3.2: 128 K). [tokens]"""
KV_HEADS: Final = 8
HEAD_DIM: Final = 128
SMALL_HEAD_DIM: Final = 64
"""Of models under a hidden size of 3072, as in Llama 3.2 1B. [elements]"""
SMALL_HIDDEN: Final = 3072
TIED_BELOW: Final = 4e9
"""Smaller models share embedding and head, as Llama 3.2 does. [elements]"""
MULTIPLE: Final = 256
"""The feed-forward width is one of these. [elements]"""
ASPECT: Final = 128.0
"""Hidden size per layer; Llama 3 has 128 (8B), 102 (70B) and 130 (405B) (table 3). [elements]"""
EXPANSION: Final = 3.5
"""Feed-forward width over hidden size (same table)."""
TOLERANCE: Final = 0.01
MAX_HIDDEN: Final = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedShape:
    """A Llama-like model made to measure."""

    hidden: int
    layers: int
    width: int
    tied: bool

    @property
    def head_dim(self) -> int:
        """Width of a head [elements]."""
        return SMALL_HEAD_DIM if self.hidden < SMALL_HIDDEN else HEAD_DIM

    @property
    def kv_heads(self) -> int:
        """Eight, or half of the heads where these are fewer than eight [count]."""
        heads = self.hidden // self.head_dim
        return KV_HEADS if heads >= KV_HEADS else heads // 2

    @property
    def config(self) -> dict[str, object]:
        """The keys of a `config.json`."""
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.hidden // self.head_dim,
            "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.width,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": self.tied,
        }

    @property
    def parameters(self) -> int:
        """Exact count [elements]."""
        ends = VOCABULARY * self.hidden * (1 if self.tied else 2) + self.hidden
        kv_width = self.kv_heads * self.head_dim
        block = 2 * self.hidden * (self.hidden + kv_width + 1) + 3 * self.hidden * self.width
        return ends + self.layers * block

    @property
    def distance(self) -> float:
        """How far the proportions are from Llama 3's."""
        aspect = abs(log(self.hidden / self.layers / ASPECT))
        return aspect + abs(log(self.width / self.hidden / EXPANSION))


def is_size(word: str) -> bool:
    """Return whether a word is a size: 350m, 7.5b, 1t."""
    return SIZE.fullmatch(word) is not None


def parameters_of_size(size: str) -> int:
    """Return the parameter count that a size names [elements]."""
    match = SIZE.fullmatch(size)
    if match is None:
        raise SpecError(f"model size {size!r}: write a number and m, b or t, such as 7.5b")
    return round(float(match[1]) * SCALE[match[2].lower()])


def shape_of_size(size: str) -> SizedShape:
    """Return the Llama-like shape within 1 % of a size whose proportions are nearest Llama 3's."""
    target = parameters_of_size(size)
    fitting = [
        shape
        for hidden in _hidden_sizes(target)
        for layers in range(max(1, hidden // 256), hidden // 64 + 1)
        if (shape := _fitted(target, hidden, layers)) is not None
    ]
    if not fitting:
        raise SpecError(f"model size {size!r}: no Llama-like shape has it; give a config.json")
    return min(fitting, key=lambda shape: shape.distance)


def _hidden_sizes(target: int) -> Iterator[int]:
    """Yield hidden sizes near the cube root of what a block of 13 h^2 leaves, with whole heads."""
    middle = (target * ASPECT / 13) ** (1 / 3)
    tiny = range(2 * SMALL_HEAD_DIM, 8 * SMALL_HEAD_DIM, 2 * SMALL_HEAD_DIM)
    small = range(8 * SMALL_HEAD_DIM, SMALL_HIDDEN, 8 * SMALL_HEAD_DIM)
    large = range(SMALL_HIDDEN, MAX_HIDDEN, KV_HEADS * HEAD_DIM)
    return (h for sizes in (tiny, small, large) for h in sizes if middle / 4 <= h <= middle * 2)


def _fitted(target: int, hidden: int, layers: int) -> SizedShape | None:
    """Return the shape whose feed-forward width brings it to the target, if it comes near enough."""
    bare = SizedShape(hidden=hidden, layers=layers, width=0, tied=target < TIED_BELOW)
    step = 3 * hidden * layers * MULTIPLE
    shape = replace(bare, width=MULTIPLE * round((target - bare.parameters) / step))
    near = abs(shape.parameters / target - 1) <= TOLERANCE if target else False
    return shape if shape.width > 0 and near else None
