"""The optimizer step of frameworks that run torch.optim on the states they hold."""

from itertools import pairwise

from zeroplan.schedule.events import Collective, Recorder
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.groups import Group
from zeroplan.units import ALLOCATION_BYTES, Size, round_up
from zeroplan.workload.liveness import Change

__all__ = ["clip_by_norm_vector", "state_changes", "torch_optimizer_step"]

FP32 = 4


def state_changes(sizes: list[Size], held: Dtypes) -> list[Change]:
    """List the states of parameters of these local sizes, each in its own storage. [elements]"""
    masters = [round_up(size * held.master) for size in sizes if held.master]
    per_state = [round_up(size * held.state) for size in sizes]
    return [
        Change("optimizer", "optimizer states", sum(per_state) * held.states + sum(masters)),
    ]


def torch_optimizer_step(recorder: Recorder, sizes: list[Size], held: Dtypes) -> None:
    """Update parameters of these local sizes: what lives meanwhile depends on the implementation.

    foreach keeps the square roots of all second moments at once; for-loop two temporaries of a
    parameter and the previous one's denominator, still bound to its variable; fused none
    (torch/optim/adam.py, 2.13). Optimizers without a second moment need no such temporary.
    """
    adaptive = held.states > 1
    temporaries: list[Size] = []
    if adaptive and held.implementation == "foreach":
        temporaries = [sum(round_up(size * held.state) for size in sizes)]
    elif adaptive and held.implementation == "for-loop":
        tensors = [round_up(size * held.state) for size in sizes]
        temporaries = [max(2 * b + a for a, b in pairwise([0, *tensors]))]
    changes = tuple(Change("temporaries", "optimizer step", size) for size in temporaries)
    gone = tuple(Change("temporaries", "optimizer step", -size) for size in temporaries)
    elements = sum(sizes)
    read = elements * (held.parameter + held.gradient + held.optimizer)
    written = elements * (held.parameter + held.optimizer)
    recorder.emit(
        "optimizer step",
        "optimizer",
        changes=changes + gone,
        traffic_bytes=read + written + 2 * sum(temporaries),
    )


def clip_by_norm_vector(recorder: Recorder, tensors: int, group: Group) -> None:
    """Clip gradients held as DTensors: one all-reduce of a vector with a norm per parameter.

    Source: torch.nn.utils.clip_grad_norm_ over DTensors (2.13); it spans the shard group only.
    """
    size = tensors * FP32
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
