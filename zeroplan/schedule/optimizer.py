"""The optimizer step of frameworks that run an optimizer on the states they hold."""

from itertools import pairwise
from typing import Final

from zeroplan.schedule.events import Collective, Recorder, Stream, collective
from zeroplan.schedule.muon import muon_matmuls, muon_temporary
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.groups import Group
from zeroplan.sharding.optimizer_states import Piece, is_muons
from zeroplan.spec.run import OptimizerImplementation
from zeroplan.units import ALLOCATION_BYTES, FP32, Size, round_up
from zeroplan.workload.changes import Change

__all__ = [
    "OPTIMIZER_STATES",
    "Sizes",
    "clip_by_local_norm",
    "clip_by_norm_vector",
    "clip_whole",
    "paged_bytes",
    "state_changes",
    "temporaries",
    "torch_optimizer_step",
    "torch_state_changes",
]

OPTIMIZER_STATES: Final = "optimizer states"
"""Owner of what an optimizer makes in its first update."""

LAUNCHES: Final = {"for-loop": 12, "foreach": 1, "fused": 0.25}
"""Host time of an update per tensor, in launches: a kernel for each of Adam's operations, or lists
of tensors that are prepared for a few kernels (torch/optim/adam.py, 2.13, timed on a CPU)."""

Sizes = list[tuple[Size, int]]
"""Storages with the number of their copies. [elements]"""


def state_changes(pieces: list[Piece], held: Dtypes) -> list[Change]:
    """List the states of what a rank updates, each in a storage of its own."""
    masters = sum(round_up(piece.elements * held.master) * piece.times for piece in pieces)
    states = sum(
        sum(map(round_up, held.rule.states(piece, held.state).storages)) * piece.times
        for piece in pieces
    )
    copies = [Change("optimizer", "master copies", masters)] if held.master else []
    shared = round_up(held.rule.shared_bytes)
    return [*copies, Change("optimizer", OPTIMIZER_STATES, states + shared)]


def torch_state_changes(pieces: list[Piece], held: Dtypes) -> list[Change]:
    """List what torch.optim holds: a fused Adam also counts each parameter's steps on the GPU."""
    changes = state_changes(pieces, held)
    if held.rule.update in ("adam", "muon") and held.implementation == "fused":
        tensors = sum(piece.times for piece in _adams(pieces, held))
        changes.append(Change("optimizer", OPTIMIZER_STATES, tensors * ALLOCATION_BYTES))
    return changes


def paged_bytes(pieces: list[Piece], held: Dtypes) -> Size:
    """Sum the states in unified memory: the host has room for them, the GPU while it has any. [B]"""
    return sum(held.rule.states(piece, held.state).paged * piece.times for piece in pieces)


def torch_optimizer_step(
    recorder: Recorder, pieces: list[Piece], held: Dtypes, *, stream: Stream = "compute"
) -> None:
    """Update what a rank updates; what lives meanwhile depends on the implementation."""
    temporary = temporaries(pieces, held)
    recorder.emit(
        "optimizer step",
        "optimizer",
        stream=stream,
        changes=(
            Change("temporaries", "optimizer step", temporary),
            Change("temporaries", "optimizer step", -temporary),
        ),
        steps=tuple(muon_matmuls(pieces)) if held.rule.update == "muon" else (),
        traffic_bytes=_traffic_bytes(pieces, held, temporary),
        launches=LAUNCHES[held.implementation] * sum(piece.times for piece in pieces),
    )


def _traffic_bytes(pieces: list[Piece], held: Dtypes, temporary: Size) -> Size:
    """HBM bytes of an update: what it reads and writes, once in a fused kernel. [B]

    Adam's other implementations take eight kernels: the parameter passes four times, the gradient
    twice, the moments three and five times and the denominator six times.
    """
    elements = sum(piece.elements * piece.times for piece in pieces)
    states = sum(change.bytes for change in state_changes(pieces, held))
    states += paged_bytes(pieces, held)
    if held.rule.update == "adam" and held.implementation != "fused":
        passes = 4 * held.parameter + 2 * held.gradient + 6 * held.state
        return elements * passes + 4 * states
    return elements * (2 * held.parameter + held.gradient) + 2 * (states + temporary)


def temporaries(pieces: list[Piece], held: Dtypes) -> Size:
    """Return what lives only in an update [B].

    A kernel per parameter, or arithmetic in place (SGD), needs nothing.
    """
    match held.rule.update, held.implementation:
        case "adam" | "muon", how:
            orthogonal = (p for p in pieces if held.rule.update == "muon" and is_muons(p))
            matrices = (muon_temporary(piece, held.state) for piece in orthogonal)
            return max(_adam(_adams(pieces, held), held, how), max(matrices, default=0))
        case "lion", "for-loop":
            return 2 * max((_bytes(piece, held) for piece in pieces), default=0)
        case "adafactor", "foreach":
            return _adafactor_together(pieces, held)
        case "adafactor", _:
            return _adafactor_in_a_loop(pieces, held)
        case _:
            return 0


def _bytes(piece: Piece, held: Dtypes) -> Size:
    return round_up(piece.elements * held.state)


def _adams(pieces: list[Piece], held: Dtypes) -> list[Piece]:
    """Leave out what Muon orthogonalises."""
    return [p for p in pieces if not (held.rule.update == "muon" and is_muons(p))]


def _adam(pieces: list[Piece], held: Dtypes, how: OptimizerImplementation) -> Size:
    """Return Adam's temporaries [B].

    foreach keeps the square roots of all second moments at once; for-loop two temporaries of a
    parameter and the previous one's denominator, still bound to its variable; fused none
    (torch/optim/adam.py, 2.13).
    """
    if how == "foreach":
        return sum(_bytes(piece, held) * piece.times for piece in pieces)
    if how == "fused":
        return 0
    sizes = [_bytes(piece, held) for piece in pieces]
    return max((2 * size + before for before, size in pairwise([0, *sizes])), default=0)


def _adafactor_in_a_loop(pieces: list[Piece], held: Dtypes) -> Size:
    """Take an update and what a loop's variables still hold: the one before, means, squares.

    Source: `_single_tensor_adafactor` in torch/optim/_adafactor.py (2.13).
    """
    high: Size = 0
    before = means = squares = 0
    for piece in pieces:
        update = _bytes(piece, held)
        if len(piece.shape) > 1:
            means = sum(map(round_up, held.rule.states(piece, held.state).storages))
            high = max(high, before + update + means + squares + ALLOCATION_BYTES)
        else:
            high = max(high, before + means + update + max(squares, update))
            squares = update
        before = update
    return high


def _adafactor_together(pieces: list[Piece], held: Dtypes) -> Size:
    """Take the updates of all matrices at once, a mean each, then those of the vectors.

    Source: `_multi_tensor_adafactor` in torch/optim/_adafactor.py (2.13).
    """
    matrices = [piece for piece in pieces if len(piece.shape) > 1]
    vectors = sum(_bytes(piece, held) * piece.times for piece in pieces if len(piece.shape) <= 1)
    updates = sum(_bytes(piece, held) * piece.times for piece in matrices)
    means = sum(piece.times for piece in matrices) * ALLOCATION_BYTES
    return updates + max(means, vectors)


def clip_by_norm_vector(
    recorder: Recorder, pieces: list[Piece], group: Group, *, itemsize: int, on_host: bool = False
) -> None:
    """Clip gradients held as DTensors: one all-reduce of a vector with a norm per parameter.

    The norms are in the gradients' dtype, and where the gradients are.

    Source: torch.nn.utils.clip_grad_norm_ over DTensors (2.13); it spans the shard group only.
    """
    size = itemsize * sum(piece.times for piece in pieces)
    held = [] if on_host else pieces
    _clip(recorder, held, collective("all_reduce", group, size), itemsize=itemsize)


def clip_by_local_norm(
    recorder: Recorder, pieces: list[Piece], group: Group, *, itemsize: int
) -> None:
    """Clip gradients held as plain shards: one all-reduce of the sum of squares, 4 bytes.

    Source: FullyShardedDataParallel.clip_grad_norm_ (torch 2.13); it spans the shard group only.
    """
    _clip(recorder, pieces, collective("all_reduce", group, FP32), itemsize=itemsize)


def clip_whole(recorder: Recorder, pieces: list[Piece], *, itemsize: int) -> None:
    """Clip gradients that every rank has whole: nothing is sent."""
    _clip(recorder, pieces, None, itemsize=itemsize)


def _clip(
    recorder: Recorder, pieces: list[Piece], call: Collective | None, *, itemsize: int
) -> None:
    """Read the gradients for their norms, add these up across ranks, scale the gradients."""
    norms = ALLOCATION_BYTES * sum(piece.times for piece in pieces)
    gradients = itemsize * sum(piece.elements * piece.times for piece in pieces)
    held = Change("temporaries", "gradient norms", norms)
    recorder.emit("gradient norms", "optimizer", changes=(held,), traffic_bytes=gradients)
    recorder.emit(
        "clip gradients",
        "optimizer",
        stream="all-reduce",
        changes=(-held,),
        collective=call,
        waits=("compute",),
    )
    recorder.emit(
        "scale gradients", "optimizer", traffic_bytes=2 * gradients, waits=("all-reduce",)
    )
