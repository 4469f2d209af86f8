"""The optimizer step of frameworks that run torch.optim on the states they hold."""

from itertools import pairwise
from typing import Final

from zeroplan.schedule.events import Collective, Recorder
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.groups import Group
from zeroplan.units import ALLOCATION_BYTES, FP32, Size, round_up
from zeroplan.workload.changes import Change

__all__ = [
    "OPTIMIZER_STATES",
    "Sizes",
    "clip_by_local_norm",
    "clip_by_norm_vector",
    "state_changes",
    "torch_optimizer_step",
    "torch_state_changes",
]

OPTIMIZER_STATES: Final = "optimizer states"
"""Owner of what torch.optim makes in its first update."""

LAUNCHES: Final = {"for-loop": 12, "foreach": 1, "fused": 0.25}
"""Host time of an update per tensor, in launches: a kernel for each of Adam's operations, or lists
of tensors that are prepared for a few kernels (torch/optim/adam.py, 2.13, timed on a CPU)."""

Sizes = list[tuple[Size, int]]
"""A rank's elements of each parameter, in order, with the number of its copies. [elements]"""


def state_changes(sizes: Sizes, held: Dtypes) -> list[Change]:
    """List the states of parameters, each in a storage of its own."""
    masters = sum(round_up(size * held.master) * times for size, times in sizes)
    states = sum(round_up(size * held.state) * times for size, times in sizes) * held.states
    copies = [Change("optimizer", "master copies", masters)] if held.master else []
    return [*copies, Change("optimizer", OPTIMIZER_STATES, states)]


def torch_state_changes(sizes: Sizes, held: Dtypes) -> list[Change]:
    """List what torch.optim holds: a fused Adam also counts each parameter's steps on the GPU."""
    changes = state_changes(sizes, held)
    if held.states > 1 and held.implementation == "fused":
        tensors = sum(times for _, times in sizes)
        changes.append(Change("optimizer", OPTIMIZER_STATES, tensors * ALLOCATION_BYTES))
    return changes


def torch_optimizer_step(recorder: Recorder, sizes: Sizes, held: Dtypes) -> None:
    """Update parameters: what lives meanwhile depends on the implementation.

    foreach keeps the square roots of all second moments at once; for-loop two temporaries of a
    parameter and the previous one's denominator, still bound to its variable; fused none
    (torch/optim/adam.py, 2.13). Optimizers without a second moment need no such temporary.
    """
    temporary: Size = 0
    if held.states > 1:
        tensors = [(round_up(size * held.state), times) for size, times in sizes]
        if held.implementation == "foreach":
            temporary = sum(size * times for size, times in tensors)
        elif held.implementation == "for-loop":
            alone = [size for size, _ in tensors]
            temporary = max(2 * size + before for before, size in pairwise([0, *alone]))
    elements = sum(size * times for size, times in sizes)
    read = elements * (held.parameter + held.gradient + held.optimizer)
    written = elements * (held.parameter + held.optimizer)
    recorder.emit(
        "optimizer step",
        "optimizer",
        changes=(
            Change("temporaries", "optimizer step", temporary),
            Change("temporaries", "optimizer step", -temporary),
        ),
        traffic_bytes=read + written + 2 * temporary,
        launches=LAUNCHES[held.implementation] * sum(times for _, times in sizes),
    )


def clip_by_norm_vector(recorder: Recorder, tensors: int, group: Group, *, itemsize: int) -> None:
    """Clip gradients held as DTensors: one all-reduce of a vector with a norm per parameter.

    The norms are in the gradients' dtype.

    Source: torch.nn.utils.clip_grad_norm_ over DTensors (2.13); it spans the shard group only.
    """
    _clip(recorder, tensors, group, tensors * itemsize)


def clip_by_local_norm(recorder: Recorder, tensors: int, group: Group) -> None:
    """Clip gradients held as plain shards: one all-reduce of the sum of squares, 4 bytes.

    Source: FullyShardedDataParallel.clip_grad_norm_ (torch 2.13); it spans the shard group only.
    """
    _clip(recorder, tensors, group, FP32)


def _clip(recorder: Recorder, tensors: int, group: Group, size: Size) -> None:
    norms = tensors * ALLOCATION_BYTES
    collective = Collective(name="all_reduce", group=group, input_bytes=size, output_bytes=size)
    recorder.emit(
        "clip gradients",
        "optimizer",
        stream="all-reduce",
        changes=(
            Change("temporaries", "gradient norms", norms),
            Change("temporaries", "gradient norms", -norms),
        ),
        collective=collective if group.ranks > 1 else None,
    )
