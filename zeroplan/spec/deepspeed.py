"""DeepSpeed's own settings, as the spec file and the command line know them."""

from zeroplan.records import dataclass
from zeroplan.spec.words import Count, Elements, Share, StoredDtype, Version

__all__ = ["DeepSpeed"]


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
    version: Version = "0.19.8"
    """DeepSpeed's version, which decides what keys there are."""
    mics_shard_size: Count | None = None
    """MiCS, up to version 0.19.6: ranks that share one copy of the sharded state. [count]"""
    mics_hierarchical_params_gather: bool = False
    """MiCS: whether parameters are gathered between nodes, then inside them."""
    zero_hpz_partition_size: Count = 1
    """ZeRO++ hpZ: ranks that share a second copy of the parameters for backward; 1 is none. [count]"""
    zero_quantized_weights: bool = False
    """ZeRO++ qwZ: whether parameters are gathered as int8, with fp32 scales."""
    zero_quantized_gradients: bool = False
    """ZeRO++ qgZ: whether gradients are reduced as int4, by two all-to-alls; on several nodes only."""
    communication_data_type: StoredDtype | None = None
    """Dtype on the wire; auto is reduce_dtype."""
    grad_accum_dtype: StoredDtype | None = None
    """Dtype in which gradients accumulate; auto is the compute dtype."""
    offload_param_buffer_count: Count = 5
    """NVMe: pinned buffers through which parameters come and go. [count]"""
    offload_param_buffer_size: Elements = 100_000_000
    """NVMe: size of such a buffer. [elements]"""
    offload_param_max_in_cpu: Elements = 1_000_000_000
    """NVMe: parameters of a rank that stay in host memory all the same. [elements]"""
    offload_optimizer_buffer_count: Count = 4
    """NVMe: pinned buffers of one sub-group through which states come and go. [count]"""
    offload_optimizer_ratio: Share = 1.0
    """Share of the optimizer that runs on the CPU (ZeRO-Offload++); only 1 is modelled. [1]"""
