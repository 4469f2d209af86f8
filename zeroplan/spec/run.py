"""What a user asks: a model, how it is trained, how its state is sharded, on which GPUs.

These records are the spec file's tables, key for key, and the command line's flags: the type, the
default and the sentence under each field are the only place where a key is described. Wherever a
key depends on the model, the hardware or the strategy its default is None, which a file and a flag
spell "auto".
"""

from typing import Annotated, Final, Literal, NamedTuple

from zeroplan.records import dataclass, field
from zeroplan.units import GIGA

__all__ = [
    "WITHOUT_LOGITS",
    "AllReduce",
    "Attention",
    "Backend",
    "BackwardPrefetch",
    "ClusterChoice",
    "DeepSpeed",
    "Dtype",
    "Experts",
    "Loss",
    "ModelChoice",
    "Norm",
    "Optimizer",
    "OptimizerImplementation",
    "Pattern",
    "Precision",
    "Range",
    "RootWrap",
    "Rope",
    "Run",
    "ShardingChoice",
    "Shorthands",
    "StoredDtype",
    "Strategy",
    "Synchronize",
    "TrainingChoice",
]


class Range(NamedTuple):
    """The numbers that a key can have, both ends included."""

    low: float
    high: float


class Pattern(NamedTuple):
    """The text that a key can have: a regular expression, and the same in words."""

    regex: str
    words: str


Attention = Literal["flash", "flash-expanded-kv", "math"]
Norm = Literal["fused", "eager"]
Rope = Literal["half", "complex"]
Loss = Literal["fp32-logits", "model-dtype-logits", "compiled", "chunked", "fused-linear"]
WITHOUT_LOGITS: Final[tuple[Loss, ...]] = ("chunked", "fused-linear")
"""Losses that never have all logits at once."""
Experts = Literal["grouped", "loop"]
Dtype = Literal["fp32", "tf32", "bf16", "fp16"]
Precision = Literal["fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16"]
StoredDtype = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal[
    "adamw",
    "adam",
    "sgd",
    "sgd-momentum",
    "lion",
    "adafactor",
    "adamw-8bit",
    "muon",
    "none",
]
OptimizerImplementation = Literal["foreach", "fused", "for-loop"]
Strategy = Literal[
    "none",
    "ddp",
    "zero0",
    "zero1",
    "zero2",
    "zero3",
    "fsdp1",
    "fsdp2",
    "hsdp",
    "torch-zero1",
]
AllReduce = Literal["every", "last"]
Synchronize = Literal["every", "last"]
RootWrap = Literal["together", "separate"]
BackwardPrefetch = Literal["pre", "post", "none"]
Backend = Literal["nccl", "gloo"]

Count = Annotated[int, Range(1, 10**6)]
Depth = Annotated[int, Range(0, 10**6)]
Tokens = Annotated[int, Range(1, 10**8)]
Elements = Annotated[int, Range(0, 10**15)]
Bytes = Annotated[int, Range(1, 2**40)]
Factor = Annotated[float, Range(1, 10**6)]
NormLimit = Annotated[float, Range(0, GIGA)]
Checkpointing = Annotated[
    str, Pattern("none|full|selective|every-[1-9][0-9]{0,5}", "none, full, selective or every-K")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model, and with which kernels it runs."""

    source: str
    """Preset (llama-3.1-70b), path to a config.json, or size (70b)."""
    attention: Attention = "flash"
    """Attention kernel: flash, flash with k and v repeated to all heads, or materialised scores."""
    norm: Norm = "fused"
    """RMSNorm as one kernel, or written in fp32 Python."""
    rope: Rope = "half"
    """Rotary embedding by rotate_half in the compute dtype, or through fp32 complex numbers."""
    loss: Loss = "fp32-logits"
    """Form of the cross-entropy over the vocabulary."""
    keep_logits: bool = False
    """Whether the training loop holds the logits until those of the next micro-step replace them."""
    experts: Experts = "grouped"
    """Experts by one grouped matmul over all routed rows, or in a loop, one after the other."""
    expert_imbalance: Factor = 1.0
    """loop: tokens of the fullest expert over the mean. [1]"""
    expert_alignment: Count = 1
    """grouped: rows to which each expert's are padded; torchtitan's fp8 path takes 16. [rows]"""
    compile: bool = False
    """Whether the blocks go through torch.compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingChoice:
    """What one optimizer step processes, and in which dtypes."""

    sequence_length: Tokens | None = None
    """Sequence length; auto is 4096, or the model's maximum if that is less. [tokens]"""
    micro_batch_size: Count = 1
    """Sequences per GPU per micro-step. [count]"""
    images_per_sequence: Count = 1
    """Images of each sequence that go through a vision tower. [count]"""
    image_tokens: Tokens | None = None
    """Tokens of an image in the tower (patches, class token); auto is the model's own. [tokens]"""
    gradient_accumulation_steps: Count = 1
    """Micro-steps per optimizer step. [count]"""
    activation_checkpointing: Checkpointing = "full"
    """none, full, selective (torchtitan's rule per operation) or every-K (one block in K)."""
    checkpoint_reentrant: bool = False
    """Whether checkpointing is reentrant, which recomputes a block to its end."""
    parameter_dtype: StoredDtype = "fp32"
    """Dtype of the parameters that the optimizer updates."""
    master_copy: bool = False
    """Whether an fp32 copy stands beside low-precision parameters (Megatron, apex)."""
    compute_dtype: Dtype = "bf16"
    """Dtype of matmuls and activations."""
    reduce_dtype: StoredDtype | None = None
    """Dtype of the gradient reduction; auto is fp32, for DeepSpeed the compute dtype."""
    optimizer: Optimizer = "adamw"
    """Optimizer, which sets the states per parameter."""
    optimizer_implementation: OptimizerImplementation | None = None
    """How the optimizer runs; auto is foreach, for DeepSpeed its own fused Adam."""
    gradient_clipping: NormLimit = 0.0
    """Largest gradient norm; 0 does not clip. [1]"""

    @property
    def checkpoint_every(self) -> int:
        """Every how many blocks one is checkpointed whole: 1 is full, 0 is none."""
        if self.activation_checkpointing.startswith("every-"):
            return int(self.activation_checkpointing.removeprefix("every-"))
        return 1 if self.activation_checkpointing == "full" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shorthands:
    """Keys of the training table that stand for several others; those win where both are given."""

    precision: Precision | None = None
    """Sets parameter, compute and reduce dtype at once; a plain bf16 or fp16 stores it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeed:
    """DeepSpeed's `zero_optimization` section under its own names and defaults.

    Source: deepspeed/runtime/zero/config.py and runtime/config.py, DeepSpeed 0.19.8.
    """

    reduce_bucket_size: Elements = 500_000_000
    """Gradients reduced at once. [elements]"""
    allgather_bucket_size: Elements = 500_000_000
    """Parameters gathered at once, where torch lacks all_gather_into_tensor. [elements]"""
    overlap_comm: bool | None = None
    """Whether reduction overlaps backward; auto does so for stage 3 only."""
    contiguous_gradients: bool = True
    """Whether gradients are copied to one buffer as they arrive."""
    reduce_scatter: bool = True
    """Whether gradients are reduced to their owners instead of to every rank."""
    use_multi_rank_bucket_allreduce: bool = True
    """Whether stages 1 and 2 all-reduce a whole bucket instead of one slice per owner."""
    round_robin_gradients: bool = False
    """Whether stages 1 and 2 deal parameters out in turn."""
    sub_group_size: Elements = 1_000_000_000
    """Parameters updated at once in stage 3. [elements]"""
    stage3_prefetch_bucket_size: Elements = 50_000_000
    """Parameters prefetched at once. [elements]"""
    stage3_param_persistence_threshold: Elements = 100_000
    """Parameters smaller than this are never partitioned. [elements]"""
    stage3_max_live_parameters: Elements = 1_000_000_000
    """Gathered parameters beyond which nothing is prefetched. [elements]"""
    stage3_max_reuse_distance: Elements = 1_000_000_000
    """Parameters used again within this distance are kept. [elements]"""
    communication_data_type: StoredDtype | None = None
    """Dtype on the wire; auto is reduce_dtype."""
    grad_accum_dtype: StoredDtype | None = None
    """Dtype in which gradients accumulate; auto is the compute dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingChoice:
    """How parameters, gradients and optimizer states are spread over the GPUs."""

    strategy: Strategy | None = None
    """Data-parallel strategy; auto lays ddp, zero1-3, fsdp2 and hsdp side by side."""
    shard_size: Count | None = None
    """Ranks that share one copy of the sharded state; auto is all, for hsdp one node; 1 is fsdp1's
    NO_SHARD. [count]"""
    replicate_size: Count | None = None
    """Copies of the sharded state; auto is 1, for hsdp the number of nodes. [count]"""
    reshard_after_forward: bool | Count = True
    """Whether blocks are resharded after forward, or to how many ranks."""
    root_reshard_after_forward: bool | None = None
    """The same for the root group; auto keeps it, as FSDP2 does."""
    unshard_in_backward: bool = True
    """Whether the embedding group is gathered again in backward."""
    reshard_after_backward: bool = True
    """Whether parameters are resharded between micro-steps."""
    all_reduce: AllReduce = "every"
    """hsdp: all-reduce in every synchronised micro-step, or in the last."""
    root_wrap: RootWrap = "together"
    """Embedding, norm and head in the root group together, or embedding and [norm, head] apart."""
    synchronize_gradients: Synchronize = "every"
    """Reduce gradients in every micro-step, or in the last (no_sync)."""
    bucket_bytes: Bytes = 26_214_400
    """ddp: size at which a gradient bucket is reduced. [B]"""
    gradient_as_bucket_view: bool = False
    """ddp, torch-zero1: whether gradients are views of the buckets."""
    parameters_as_bucket_view: bool = False
    """torch-zero1: whether parameters lie in one buffer per rank, and each is sent at once."""
    use_orig_params: bool = True
    """fsdp1: whether the optimizer sees the original parameters instead of the flat ones."""
    backward_prefetch: BackwardPrefetch = "pre"
    """fsdp1: gather the next unit before a unit's backward, after it, or when its turn comes."""
    forward_prefetch_blocks: Depth = 0
    """fsdp2, hsdp: blocks that each block gathers ahead in forward
    (`set_modules_to_forward_prefetch`); 0 is the implicit prefetch. [blocks]"""
    backward_prefetch_blocks: Depth = 0
    """The same in backward, where the implicit prefetch gathers one ahead. [blocks]"""
    deepspeed: DeepSpeed = field(default_factory=DeepSpeed)
    """Settings of zero0 to zero3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """Which GPUs, how many, and what joins them."""

    gpu: str | None = None
    """GPU profile; auto is the node's, else h100-sxm5-80gb."""
    gpus: Count = 8
    """GPUs altogether. [count]"""
    gpus_per_node: Count | None = None
    """GPUs in one node; auto is the node's, else 8. [count]"""
    node: str | None = None
    """Node profile (dgx-h100), which sets the links unless they are given."""
    link: str | None = None
    """Link between nodes: ib, roce, efa, ethernet, nvlink or a profile; auto is the GPU's usual."""
    intra_link: str | None = None
    """Link inside a node; auto is the node's, else the GPU's usual."""
    backend: Backend = "nccl"
    """Communication library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One question: the four tables of a spec file."""

    model: ModelChoice
    training: TrainingChoice = field(default_factory=TrainingChoice)
    sharding: ShardingChoice = field(default_factory=ShardingChoice)
    cluster: ClusterChoice = field(default_factory=ClusterChoice)
