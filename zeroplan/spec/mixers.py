"""The words for recurrent token mixers: state-space layers and linear attention."""

from zeroplan.records import dataclass

__all__ = ["GatedDeltaNet", "Mamba", "Mamba2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """A selective state-space layer (Gu and Dao, arXiv 2312.00752, section 3.4)."""

    hidden: int
    inner: int
    """Channels that are scanned. [elements]"""
    state: int
    """State of one channel. [elements]"""
    kernel: int
    """Taps of the causal convolution. [tokens]"""
    time_step_rank: int
    bias: bool = False
    conv_bias: bool = True
    inner_norms: bool = False
    """RMSNorms of the time step, B and C (Jamba)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """A state-space layer with heads (Dao and Gu, arXiv 2405.21060, section 7)."""

    hidden: int
    inner: int
    """Channels that are scanned: heads times the width of a head. [elements]"""
    heads: int
    groups: int
    """Heads of one group share B and C. [count]"""
    state: int
    """State of one channel. [elements]"""
    kernel: int
    """Taps of the causal convolution. [tokens]"""
    chunk: int = 256
    """Tokens that are multiplied out together. [tokens]"""
    bias: bool = False
    output_bias: bool | None = None
    """None: as `bias`."""
    conv_bias: bool = True
    gated_norm: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Linear attention by the gated delta rule (Yang et al., arXiv 2412.06464)."""

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    """Width of one key head. [elements]"""
    value_dim: int
    """Width of one value head. [elements]"""
    kernel: int
    """Taps of the causal convolution. [tokens]"""
    fused: bool = False
    """Two input projections (Qwen3-Next) instead of four (Qwen3.5)."""
    chunk: int = 64
    """Tokens that are multiplied out together. [tokens]"""
