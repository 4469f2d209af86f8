"""What a user asks: a model, how it is trained, how its state is sharded, on which GPUs.

These records are the spec file's tables, key for key, and the command line's flags: the type, the
default and the sentence under each field are the only place where a key is described. Wherever a
key depends on the model, the hardware or the strategy its default is None, which a file and a flag
spell "auto".
"""

from zeroplan.records import dataclass, field
from zeroplan.spec.deepspeed import DeepSpeed
from zeroplan.spec.tuning import TuningChoice
from zeroplan.spec.words import (
    WITHOUT_LOGITS,
    AllReduce,
    Attention,
    Average,
    Backend,
    BackwardPrefetch,
    Bytes,
    Checkpointing,
    Count,
    Depth,
    Dtype,
    Experts,
    Factor,
    Float8,
    HostBytes,
    Loading,
    Loss,
    Norm,
    NormLimit,
    Offload,
    Optimizer,
    OptimizerImplementation,
    Oversubscription,
    Precision,
    RootWrap,
    Rope,
    StateBytes,
    StoredDtype,
    Strategy,
    Synchronize,
    Tokens,
)

__all__ = [
    "WITHOUT_LOGITS",
    "AllReduce",
    "Attention",
    "Average",
    "Backend",
    "BackwardPrefetch",
    "ClusterChoice",
    "DeepSpeed",
    "Dtype",
    "Experts",
    "Float8",
    "Loading",
    "Loss",
    "ModelChoice",
    "Norm",
    "Offload",
    "Optimizer",
    "OptimizerImplementation",
    "Precision",
    "RootWrap",
    "Rope",
    "Run",
    "ShardingChoice",
    "Shorthands",
    "StoredDtype",
    "Strategy",
    "Synchronize",
    "TrainingChoice",
    "TuningChoice",
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
    offload_activations: bool = False
    """Whether what checkpoints keep goes to pinned host memory (`save_on_cpu` around blocks)."""
    checkpoint_reentrant: bool = False
    """Whether checkpointing is reentrant, which recomputes a block to its end."""
    parameter_dtype: StoredDtype = "fp32"
    """Dtype of the parameters that the optimizer updates."""
    master_copy: bool = False
    """Whether an fp32 copy stands beside low-precision parameters (Megatron, apex)."""
    compute_dtype: Dtype = "bf16"
    """Dtype of matmuls and activations."""
    fp8: Float8 = "none"
    """Scales with which torchao runs the linear layers of blocks in fp8; needs model.compile."""
    reduce_dtype: StoredDtype | None = None
    """Dtype of the gradient reduction; auto is fp32, for DeepSpeed the compute dtype."""
    optimizer: Optimizer = "adamw"
    """Optimizer, which sets the states per parameter."""
    optimizer_implementation: OptimizerImplementation | None = None
    """How the optimizer runs; auto is its library's default, for DeepSpeed its own fused Adam."""
    optimizer_state_dtype: StoredDtype | None = None
    """Dtype of optimizer states beside a master copy (Megatron's precision-aware); auto is fp32."""
    optimizer_bytes_per_parameter: StateBytes | None = None
    """What the optimizer keeps per parameter, master copies aside; auto is its row's. [B]"""
    optimizer_in_backward: bool = False
    """none, fsdp2, hsdp: whether each parameter is updated as its gradient arrives, which then goes."""
    ema: Average = "none"
    """Dtype of a running average of the parameters, kept and sharded as they are."""
    reference_model: bool = False
    """Whether a frozen copy in the compute dtype runs forward before the model (DPO, PPO)."""
    gradient_clipping: NormLimit = 0.0
    """Largest gradient norm; 0 does not clip. [1]"""
    load: Loading | None = None
    """Who reads the weights: every-rank, rank0 of a node, sharded; auto is unchecked every-rank."""
    load_dtype: StoredDtype | None = None
    """Dtype in which the weights are read; auto is parameter_dtype."""

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
    """Sets parameter, compute and reduce dtype at once; a plain bf16 or fp16 stores it too, and
    -master keeps an fp32 copy beside it."""


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
    """fsdp2, hsdp: blocks that each block gathers ahead in forward (explicit prefetch); 0 is the
    implicit prefetch. [blocks]"""
    backward_prefetch_blocks: Depth = 0
    """The same in backward, where the implicit prefetch gathers one ahead. [blocks]"""
    fp8_all_gather: bool = False
    """fsdp2, hsdp: whether weights of fp8 layers are cast before they are gathered."""
    offload_optimizer: Offload = "none"
    """zero1-3: where optimizer states live and are updated; nvme for zero3 only."""
    offload_parameters: Offload = "none"
    """zero3: where parameter shards live; cpu with fsdp1, fsdp2, hsdp moves all states there."""
    offload_pin_memory: bool = True
    """Whether offloaded tensors are pinned, which lets copies overlap."""
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
    oversubscription: Oversubscription = 1.0
    """Bandwidth of the nodes' NICs over that of the network above them."""
    host_memory_bytes: HostBytes | None = None
    """Host memory of a node; auto is the node's, else unknown. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One question: the tables of a spec file."""

    model: ModelChoice
    training: TrainingChoice = field(default_factory=TrainingChoice)
    tuning: TuningChoice = field(default_factory=TuningChoice)
    sharding: ShardingChoice = field(default_factory=ShardingChoice)
    cluster: ClusterChoice = field(default_factory=ClusterChoice)

    @property
    def offloads(self) -> bool:
        """Whether anything is asked to live off the GPU."""
        sharding = self.sharding
        if self.training.offload_activations:
            return True
        return not sharding.offload_optimizer == sharding.offload_parameters == "none"
