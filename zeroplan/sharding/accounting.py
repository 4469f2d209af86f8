"""Named accountings: the figures that others publish for a strategy, computed as they do.

They are for comparison. zeroplan's own answer counts exact, padded shards and everything else that
lives; `states.py` has its three states.
"""

from typing import Literal

from zeroplan.sharding.strategies import Sharding
from zeroplan.units import Size

__all__ = [
    "Offload",
    "deepspeed_host_bytes",
    "deepspeed_state_bytes",
    "paper_state_bytes",
    "paper_volume",
]

FP16 = 2

Offload = Literal["none", "optimizer", "optimizer and parameters"]


def paper_state_bytes(
    row: Sharding, parameters: Size, ranks: Size, *, optimizer_bytes: int = 12
) -> Size:
    """State per rank by the ZeRO paper: (2 + 2 + K) Psi with each part over N where divided [B].

    Source: Rajbhandari et al., arXiv 1910.02054, section 5 and figure 1.

    Parameters
    ----------
    parameters
        Psi [elements].
    ranks
        N, ranks that share one copy [count].
    optimizer_bytes
        K: 12 for Adam with fp32 master, momentum and variance [B/element].
    """
    return parameters * (
        FP16 / (ranks if row.divides_parameters else 1)
        + FP16 / (ranks if row.divides_gradients else 1)
        + optimizer_bytes / (ranks if row.divides_optimizer else 1)
    )


def paper_volume(row: Sharding, parameters: Size) -> Size:
    """Elements that a rank sends in a step, by the ZeRO paper, for many ranks [elements].

    A reduce-scatter and an all-gather of Psi each, whether they are an all-reduce of gradients or
    apart; divided parameters are gathered once more, for backward. DeepSpeed itself all-reduces in
    stages 1 and 2 and then gathers, so it sends more than this.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7.
    """
    return (3 if row.divides_parameters else 2) * parameters


def deepspeed_state_bytes(
    row: Sharding,
    parameters: int,
    ranks: int,
    *,
    largest_layer: int,
    offload: Offload = "none",
) -> int:
    """State per GPU by DeepSpeed's estimators of stages 2 and 3 [B].

    16-bit parameters stay whole, or 4 bytes of the largest layer where they are divided, and 18
    bytes a parameter over N; offloading takes the optimizer's 16 of them away, or all.

    Source: estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs in
    deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (0.19.8).

    Parameters
    ----------
    parameters
        P [elements].
    ranks
        N [count].
    largest_layer
        Parameters of the module that has most of its own [elements].
    offload
        What lies in host memory.
    """
    whole = 4 * largest_layer if row.divides_parameters else FP16 * parameters
    divided = {
        "none": 18,
        "optimizer": FP16 if row.divides_parameters else 0,
        "optimizer and parameters": 0,
    }
    return whole + divided[offload] * parameters // ranks


def deepspeed_host_bytes(
    row: Sharding,
    parameters: int,
    *,
    gpus_per_node: int,
    nodes: int,
    offload: Offload,
    built_in_parts: bool = True,
) -> int:
    """Host memory by DeepSpeed's estimators of stages 2 and 3, where they offload [B].

    1.5 times 16 or 18 bytes a parameter, or what building the model in fp32 on every rank takes if
    that is more. Stage 3 counts a node; stage 2 says the same but takes all GPUs of the job for
    those of a node, so that on several nodes its figure is of no machine.

    Source: the functions named in `deepspeed_state_bytes`.

    Parameters
    ----------
    parameters
        P [elements].
    gpus_per_node, nodes
        [count].
    offload
        What lives in host memory.
    built_in_parts
        Stage 3: whether the model is built under `zero.Init`.
    """
    if not row.divides_parameters:
        return int(1.5 * parameters * max(4 * gpus_per_node * nodes, 16))
    divided = (18 if offload == "optimizer and parameters" else 16) / nodes
    built = 0 if built_in_parts else 4 * gpus_per_node
    return int(1.5 * parameters * max(built, divided))
