"""What happens off the GPU: copies over PCIe, and an optimizer that runs on the CPU."""

from typing import Final

from zeroplan.schedule.events import Recorder, Route, Transfer
from zeroplan.schedule.optimizer import temporaries
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.offload import HostBuffer, Offloading
from zeroplan.sharding.optimizer_states import Piece
from zeroplan.units import FP32, Size

__all__ = ["NORMS", "TEMPORARY", "copied", "host_states", "host_step", "host_temporary"]

NORMS: Final = "gradient norms"
"""Owner of the norms that DeepSpeed takes on the GPU before a gradient goes to the host."""

TEMPORARY: Final = "optimizer step"
"""Name of what is in host memory only while the CPU updates."""

ENDS: Final = ("reduce-scatter", "all-reduce", "device to host")
"""Streams whose work the host waits for before it updates."""


def copied(offload: Offloading, size: Size) -> Transfer:
    """Return a copy between GPU and host, pinned or not [B]."""
    return Transfer("pinned copy" if offload.pinned else "pageable copy", size)


def _states_bytes(pieces: list[Piece], held: Dtypes) -> Size:
    """Sum the states of what a rank updates, masters aside [B]."""
    return sum(sum(held.rule.states(p, held.state).storages) * p.times for p in pieces)


def host_states(pieces: list[Piece], held: Dtypes, *, master: bool = True) -> HostBuffer:
    """Return optimizer states, which are not pinned, with the master copies or without."""
    masters = sum(piece.elements * held.master * piece.times for piece in pieces)
    size = _states_bytes(pieces, held) + (masters if master else 0)
    return HostBuffer(name="optimizer states", bytes=size)


def host_temporary(pieces: list[Piece], held: Dtypes) -> HostBuffer:
    """Return what an update of parameters needs for a while.

    On the CPU torch.optim runs parameter by parameter unless told otherwise
    (`_default_to_fused_or_foreach`, torch/optim/optimizer.py, 2.13).
    """
    return HostBuffer(name=TEMPORARY, bytes=temporaries(pieces, held))


def host_step(recorder: Recorder, pieces: list[Piece], held: Dtypes) -> None:
    """Update parameters on the CPU once all gradients are there; the GPU waits.

    Everything is read once and, but for gradients, written once, and a master is copied to the
    parameters' dtype. An update that is not fused goes over it several times, which its rate
    accounts for.
    """
    elements = sum(piece.elements * piece.times for piece in pieces)
    states = _states_bytes(pieces, held)
    if held.master:
        moved = 2 * (elements * held.master + states) + elements * (FP32 + held.parameter)
    else:
        moved = 2 * (elements * held.parameter + states) + elements * held.gradient
    route: Route = "fused update" if held.implementation == "fused" else "update"
    recorder.emit(
        "optimizer step",
        "optimizer",
        stream="cpu",
        transfer=Transfer(route, moved),
        waits=("compute", *ENDS),
    )
    recorder.emit("wait for the host", "optimizer", waits=("cpu",))
