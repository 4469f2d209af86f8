"""Multi-head latent attention: queries, keys and values expanded from narrow projections."""

from zeroplan.records import dataclass

__all__ = ["Indexer", "LatentAttention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Chooses the keys that each query attends to (DeepSeek sparse attention)."""

    heads: int
    head_dim: int
    keys: int
    """Keys that each query keeps. [tokens]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Attention whose keys and values come from one low-rank state per token.

    DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434, section 2.1. A head's query and key are `nope_dim`
    elements without position beside `rope_dim` rotated ones; the rotated key is shared by all heads.
    """

    hidden: int
    heads: int
    query_rank: int | None
    """Width of the compressed query; None: queries come straight from the hidden states."""
    kv_rank: int
    """Width of the compressed keys and values. [elements]"""
    nope_dim: int
    rope_dim: int
    value_dim: int
    bias: bool = False
    """Of the compressing projections and of the output."""
    indexer: Indexer | None = None

    @property
    def query_dim(self) -> int:
        """Width of one head's query and key [elements]."""
        return self.nope_dim + self.rope_dim
