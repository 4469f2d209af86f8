"""A ledger of live tensor storages, kept while PyTorch runs.

A storage is entered when an operation first returns it and struck out when its last reference
goes, which is when the CUDA caching allocator lowers `allocated_bytes`
(c10/cuda/CUDACachingAllocator.cpp, free). Sizes are rounded up like the allocator's.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from zeroplan.records import dataclass
from zeroplan.units import round_up
from zeroplan.validate.pytorch.tensors import tensors_in
from zeroplan.validate.record import Phase

__all__ = ["Ledger", "Side", "storage_of"]

Side = Literal["host", "device"]

ADDITION = torch.ops.aten.add.Tensor
NUMBER = torch.ops.aten._local_scalar_dense.default
"""How a number is read from a tensor: a fake one has none, and its value changes no size."""
HOST = torch.ops.aten.lift_fresh.default
"""How `torch.tensor(1.0)` arrives: such numbers live on the host when the model is on a GPU."""


@dataclass(slots=True)
class _Entry:
    reference: weakref.ref[torch.UntypedStorage]
    size: int


class Ledger(TorchDispatchMode):
    """Counts live bytes of real tensors or of one fake mode, with the highest of each phase."""

    def __init__(self, fake: FakeTensorMode | None = None) -> None:
        super().__init__()
        self.fake = fake
        self.live: dict[int, _Entry] = {}
        self.total = 0
        self.phase: Phase | None = None
        self.peaks: dict[Phase, tuple[int, str]] = {}
        self.host: set[int] = set()
        """Storages of `live` that are in host memory, where nothing is counted."""
        self.side: Side | None = None
        """Where the next storages are, whatever they are made of."""
        self.updates_on_host = False
        """Whether the optimizer runs on the CPU."""
        self.pending: tuple[weakref.ref[torch.UntypedStorage], int, str] | None = None
        """An addition of two gradients, counted only if the older one outlives it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        """Run an operation and enter what it returns; a DTensor's own dispatch goes first."""
        if any(kind is DTensor for kind in types):
            return NotImplemented
        if func is NUMBER and self.fake is not None:
            return 1.0
        result = func(*args, **(kwargs or {}))
        # a view of a storage that nobody made is of gloo's own, which CUDA does not have
        borrowed = self.fake is None and func.is_view and func is not HOST
        for tensor in () if borrowed else tensors_in(result):
            if self._counts(tensor):
                self.enter(tensor, on_host=func is HOST or self._on_host(args, kwargs or {}))
        if func is ADDITION and _in_place_elsewhere(args[0]):
            self.pending = (weakref.ref(storage_of(args[0])), self.total, str(func))
        else:
            self.note(str(func))
        return result

    def _counts(self, tensor: torch.Tensor) -> bool:
        """Leave out DTensor's sharding propagation: it runs on fake tensors of another mode."""
        if isinstance(tensor, FakeTensor):
            return tensor.fake_mode is self.fake
        return self.fake is None and tensor.device.type != "meta"

    def enter(self, tensor: torch.Tensor, *, on_host: bool = False) -> None:
        """Take a tensor's storage in, unless it is known."""
        storage = storage_of(tensor)
        key = id(storage)
        known = self.live.get(key)
        if known is not None and known.reference() is storage:
            return
        size = 0 if on_host else _rounded(storage)
        self.live[key] = _Entry(weakref.ref(storage, lambda _: self._strike(key)), size)
        self.total += size
        if on_host:
            self.host.add(key)

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's storage is in host memory."""
        return id(storage_of(tensor)) in self.host

    def _on_host(self, args: Any, kwargs: Any) -> bool:
        """Whether an operation runs on the CPU: all of its tensors are there, none is sent away."""
        if self.side is not None:
            return self.side == "host"
        if self.updates_on_host and self.phase == "optimizer":
            return True
        inputs = list(tensors_in(args)) if self.host and "device" not in kwargs else []
        return bool(inputs) and all(map(self.is_on_host, inputs))

    def send_to_host(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the storages of tensors no longer."""
        for key in {id(storage_of(tensor)) for tensor in tensors} & self.live.keys():
            self.total -= self.live[key].size
            self.live[key].size = 0
            self.host.add(key)

    def begin(self, phase: Phase) -> None:
        """Open a phase; it may be one that was open before."""
        self.phase = phase
        self.note("start")

    def forget(self) -> None:
        """Let the peaks begin anew."""
        self.peaks.clear()

    def note(self, moment: str) -> None:
        """Remember the level if it is the highest of the phase."""
        if self.pending is not None:
            older, level, addition = self.pending
            self.pending = None
            if older() is not None:
                self._remember(level, addition)
        self._remember(self.total, moment)

    def _remember(self, level: int, moment: str) -> None:
        if self.phase and level > self.peaks.get(self.phase, (-1, ""))[0]:
            self.peaks[self.phase] = (level, moment)

    def bytes_of(self, tensors: Iterable[torch.Tensor]) -> int:
        """Sum the storages of tensors, each once. [B]"""
        keys = {id(storage_of(tensor)) for tensor in tensors}
        return sum(self.live[key].size for key in keys if key in self.live)

    @contextmanager
    def following_resizes(self) -> Iterator[None]:
        """Follow `UntypedStorage.resize_`, by which FSDP frees and revives parameters."""
        original = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> object:
            result = original(storage, size)
            self._resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = original

    def _resized(self, storage: torch.UntypedStorage) -> None:
        entry = self.live.get(id(storage))
        if entry is not None and entry.reference() is storage and id(storage) not in self.host:
            self.total += _rounded(storage) - entry.size
            entry.size = _rounded(storage)
            self.note("resize")

    def _strike(self, key: int) -> None:
        entry = self.live.pop(key, None)
        self.host.discard(key)
        if entry is not None:
            self.total -= entry.size


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Return the storage on this rank."""
    local = (
        tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    )  # to_local() would dispatch
    return local.untyped_storage()


def _in_place_elsewhere(older: torch.Tensor) -> bool:
    """Whether autograd would add to this gradient in place, were nobody watching.

    It does if nothing but the engine holds it, so not to a view; under a dispatch mode it always
    adds into a new tensor, which must not be counted (`can_accumulate_inplace` in
    torch/csrc/autograd/input_buffer.cpp, 2.13).
    """
    in_backward = torch._C._current_graph_task_id() >= 0 and not torch.is_grad_enabled()
    return in_backward and not older._is_view()


def _rounded(storage: torch.UntypedStorage) -> int:
    return int(round_up(storage.size()))
