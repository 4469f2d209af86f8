"""The words in which a model is described: stacks of blocks made of a few kinds of component.

A family rule (`zeroplan.spec.families`) turns a `config.json` into these records; the workload room
turns the records into operations. Widths are in elements, never bytes.
"""

from typing import Literal

from zeroplan.records import dataclass
from zeroplan.spec.latent_attention import LatentAttention
from zeroplan.spec.mixers import GatedDeltaNet, Mamba, Mamba2
from zeroplan.spec.moe import MixtureOfExperts

__all__ = [
    "Architecture",
    "Attention",
    "Block",
    "Component",
    "Embedding",
    "Head",
    "Mlp",
    "Norm",
    "Projection",
    "Stack",
    "Sublayer",
    "Weights",
]

NormKind = Literal["rms", "layer"]
Position = Literal["rope", "learned", "alibi", "relative", "none"]
Role = Literal[
    "embedding", "head", "norm", "attention", "mlp", "router", "expert", "mixer", "other"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A normalisation over the last axis."""

    kind: NormKind
    width: int
    """Elements that are normalised together. [elements]"""
    heads: int = 1
    """Rows of weight, where each head has its own (Cohere's query-key norm). [count]"""
    weight: bool = True
    bias: bool = False
    weighs_wide: bool = False
    """Whether an RMSNorm in Python multiplies by its weight before it leaves fp32 (Gemma)."""
    unit_offset: bool = False
    """Whether it adds one to an fp32 copy of its weight first (Gemma, Qwen3-Next)."""
    scales_input: bool = False
    """Whether it scales its input itself instead of the fp32 copy (T5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention with its four projections."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    key_bias: bool | None = None
    """None: as `qkv_bias` (Whisper's keys have none)."""
    output_bias: bool = False
    fused_qkv: bool = False
    transposed: bool = False
    """Weights stored [in, out] (GPT-2's Conv1D), which changes what dim-0 sharding pads."""
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    position: Position = "rope"
    rotary_dim: int | None = None
    """Rotated part of a head; None rotates all of it. [elements]"""
    wide_rotary: bool = False
    """Whether heads are turned in fp32 all the same (OLMo, Qwen's vision towers)."""
    window: int | None = None
    """Keys that a query can see (sliding window); None is all. [tokens]"""
    causal: bool = True
    sinks: bool = False
    """One learned logit per head (gpt-oss)."""
    gated: bool = False
    """The query projection also yields an output gate (Qwen3-Next, Qwen3.5)."""
    memory_width: int | None = None
    """Width of the states that keys and values are projected from (cross-attention). [elements]"""
    memory_positions: int | None = None
    """Those states per sequence; None: as many as the sequence has tokens. [tokens]"""
    relative_buckets: int = 0
    """Rows of a relative-position table held by this layer (T5's first block)."""
    shares_bias: bool = False
    """Whether all layers of its stack add to their scores what the first one made (T5)."""
    dropout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A feed-forward layer, gated (SwiGLU, GeGLU) or plain."""

    hidden: int
    width: int
    gated: bool = True
    activation: str = "silu"
    bias: bool = False
    output_bias: bool | None = None
    """None: as `bias`."""
    fused_gate_up: bool = False
    transposed: bool = False
    role: Role = "mlp"
    dropout: bool = False
    inner_dropout: bool = False
    """Of what the last layer reads (T5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Linear layers in a row: a patch embedding, a convolution stem, a projector between towers."""

    name: str
    widths: tuple[int, ...]
    """Input width, then the width after each layer. [elements]"""
    kernel: tuple[int, ...] = ()
    """Extents of a convolution's kernel; the first width then counts channels."""
    rate: tuple[int, int] = (1, 1)
    """Rows that it computes, for so many tokens of its stack (a merger of 2 x 2 patches: 1, 4)."""
    bias: bool = True
    activation: str | None = None
    """Between the layers, and after a layer that stands alone."""
    norm: Norm | None = None
    post_norm: Norm | None = None
    transposed: bool = False
    """Weights stored [in, out]."""
    side: bool = False
    """A side branch: what follows reads the same states as this one (deep-stack mergers)."""
    role: Role = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters that compute next to nothing: a class token, a layer scale, a position table."""

    name: str
    shape: tuple[int, ...]
    role: Role = "other"


Component = (
    Attention
    | LatentAttention
    | Mlp
    | MixtureOfExperts
    | Projection
    | Mamba
    | Mamba2
    | GatedDeltaNet
)
"""What a sublayer can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """A residual branch: norm, component, and sometimes a norm after it (Gemma's sandwich)."""

    name: str
    component: Component
    norm: Norm | None
    post_norm: Norm | None = None
    """Normalises the branch before it is added (Gemma 2, OLMo 2)."""
    residual_norm: Norm | None = None
    """Normalises the sum after the addition (post-norm models: BERT, OPT-350m, GPT-1)."""
    gate: str | None = None
    """Name of a trained number whose tanh weighs the branch (Llama 3.2 Vision)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One transformer layer: its sublayers in order, or side by side."""

    sublayers: tuple[Sublayer, ...]
    parallel: bool = False
    """All branches read the block's input and are added once (GPT-J, Falcon, Command R)."""
    shared_norm: bool = False
    """The parallel branches share the first sublayer's norm."""
    extras: tuple[Weights, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A lookup table, or a learned position or type table added to it."""

    name: str
    rows: int
    width: int
    kind: Literal["token", "position", "type", "patch"] = "token"
    tied: bool = False
    """Shares the token table of an earlier stack (T5's decoder)."""
    trainable: bool = True
    """False: registered but frozen (Whisper's sinusoids)."""
    projection: Projection | None = None
    """Brings a table of another width to the hidden width (OPT-350m)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One tower: what feeds it, its blocks in order, its last norm."""

    name: str
    hidden: int
    embeddings: tuple[Embedding, ...]
    blocks: tuple[Block, ...]
    final_norm: Norm | None
    embedding_norm: Norm | None = None
    stem: tuple[Projection, ...] = ()
    """From pixels or audio frames to the hidden width."""
    tail: tuple[Projection, ...] = ()
    """After the last norm: the projector to the next tower."""
    extras: tuple[Weights, ...] = ()
    kind: Literal["decoder", "encoder", "vision", "audio"] = "decoder"
    dropout: bool = False
    """Of what enters the first block."""
    final_dropout: bool = False
    """Of what the last norm returns (T5)."""
    positions: int | None = None
    """Tokens that it sees per sequence (patches, audio frames); None: the sequence length."""

    def label(self, part: str) -> str:
        """Name a part of the stack; a decoder's own parts need no prefix."""
        return part if self.kind == "decoder" else f"{self.name} {part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last projection, to the vocabulary or to classes."""

    hidden: int
    rows: int
    tied: bool
    bias: bool = False
    transform: Projection | None = None
    """What comes between the last norm and it (BERT)."""
    pooled: bool = False
    """It reads one token per sequence (classification)."""
    extras: tuple[Weights, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A whole model. The last stack is the one that carries the loss head."""

    name: str
    model_type: str
    class_name: str
    stacks: tuple[Stack, ...]
    head: Head | None
    max_positions: int | None
    """Longest sequence that the file allows; None where it sets no bound. [tokens]"""
    source: str
    assumptions: tuple[str, ...] = ()
    """What the file left open and how it was filled, in words."""
