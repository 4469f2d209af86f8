"""Bytes that come and go, and the steps that move them."""

from collections.abc import Iterable
from typing import Literal

from zeroplan.records import dataclass
from zeroplan.units import Size, round_up
from zeroplan.workload.tape import Operation, Parameter, Tensor

__all__ = [
    "Category",
    "Change",
    "Checkpointing",
    "Direction",
    "Step",
    "born",
    "freed",
    "release",
    "transient",
]

Category = Literal[
    "parameters",
    "unsharded_parameters",
    "gradients",
    "unsharded_gradients",
    "optimizer",
    "activations",
    "loss",
    "all_gather_buffers",
    "reduce_scatter_buffers",
    "temporaries",
    "workspaces",
    "other",
]


Checkpointing = Literal["none", "full", "selective", "offloaded"]
"""offloaded: full, and what the checkpoint keeps goes to host memory."""
Direction = Literal["forward", "backward", "cached"]


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes that appear (positive) or go (negative)."""

    category: Category
    owner: str
    bytes: Size

    def __neg__(self) -> "Change":
        """Take it back."""
        return Change(self.category, self.owner, -self.bytes)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation run forward or backward: the bytes that come and go, and what it yields."""

    operation: Operation
    direction: Direction
    """cached: its result was kept by selective checkpointing, so nothing is computed."""
    changes: tuple[Change, ...]
    gradients: tuple[Parameter, ...] = ()
    """Parameters whose gradient is complete after this step."""
    moved_bytes: Size = 0
    """What it copies to host memory, or from there. [B]"""


def born(tensor: Tensor, *, kept: bool) -> Change:
    """Return the change when a storage appears."""
    return Change(category_of(tensor, kept=kept), tensor.name, round_up(tensor.bytes))


def freed(tensor: Tensor, *, kept: bool) -> Change:
    """Return the change when a storage goes."""
    return Change(category_of(tensor, kept=kept), tensor.name, -round_up(tensor.bytes))


def category_of(tensor: Tensor, *, kept: bool) -> Category:
    if tensor.purpose != "activations":
        return tensor.purpose
    return "activations" if kept else "temporaries"


def transient(sizes: Iterable[Size], owner: str) -> list[Change]:
    """Return storages that appear together and go together. [B]"""
    rounded = [round_up(size) for size in sizes]
    return [
        *(Change("temporaries", owner, size) for size in rounded),
        *(Change("temporaries", owner, -size) for size in rounded),
    ]


def release(changes: list[Change]) -> Step:
    """Return a step that computes nothing and only lets storages go."""
    return Step(Operation(name="release", kernel="none"), "forward", tuple(changes))
