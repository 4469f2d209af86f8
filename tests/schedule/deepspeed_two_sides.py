"""Tell host and GPU apart where both are one CPU: for steps of DeepSpeed that offload.

DeepSpeed names the GPU by `current_device_name()`, the host by "cpu", and pins what will be copied.
Here the first is "cpu:0", so that what is sent from one to the other is copied and counted where it
arrives. An operation runs on the host where all of its tensors are there. Gradient shards that
come back from the host are sent to the device of another tensor, which has no number: what is on
the host and copied without blocking goes to the GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

GPU = torch.device("cpu", 0)


class Sides:
    """Which storages of a ledger are in host memory."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger
        self.bytes: dict[int, int] = {}
        """By address of the storages on the host."""
        self.forced: str | None = None

    def held(self) -> int:
        return sum(self.bytes.values())

    def on_host(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.bytes

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor on the host."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        self.ledger.track(tensor, on_host=True)
        if key and key not in self.bytes:
            self.bytes[key] = storage.nbytes()
            self.ledger.live -= self.ledger.sizes[key]
            self.ledger.sizes[key] = 0
        return tensor

    def runs_on_host(self, args: object, kwargs: dict[str, Any]) -> bool:
        """Whether an operation's results are on the host."""
        if self.forced:
            return self.forced == "host"
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if inputs and kwargs.get("device") != GPU:
            return all(self.on_host(t) for t in inputs)
        return self.ledger.phase == "optimizer" and kwargs.get("device") == torch.device("cpu")

    def copy(self, tensor: torch.Tensor, side: str, dtype: torch.dtype | None) -> torch.Tensor:
        self.forced = side
        try:
            copied = tensor.clone()
            return copied if dtype is None else ORIGINAL_TO(copied, dtype)
        finally:
            self.forced = None

    def to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Do as `Tensor.to`, between the sides."""
        where = kwargs.get("device", args[0] if args else None)
        device = torch.device(where) if isinstance(where, str | torch.device) else None
        if device is None or device.type != "cpu":
            return ORIGINAL_TO(tensor, *args, **kwargs)
        kinds = [a for a in (*args, kwargs.get("dtype")) if isinstance(a, torch.dtype)]
        dtype = kinds[0] if kinds else None
        returns = kwargs.get("non_blocking", False) and isinstance(where, torch.device)
        wanted = "device" if device == GPU or (returns and self.on_host(tensor)) else "host"
        if device.index is None and not isinstance(where, str) and not returns:
            wanted = "host" if self.on_host(tensor) else "device"
        if (wanted == "host") != self.on_host(tensor):
            return self.copy(tensor, wanted, dtype)
        return tensor if dtype is None else ORIGINAL_TO(tensor, dtype)


ORIGINAL_TO: Callable[..., torch.Tensor] = torch.Tensor.to


def tell_apart(ledger: Any, accelerator: Any) -> Sides:
    """Make DeepSpeed copy between the sides from now on."""
    sides = Sides(ledger)
    accelerator.current_device_name = lambda: "cpu:0"
    accelerator.on_accelerator = lambda tensor: not sides.on_host(tensor)
    accelerator.pin_memory = lambda tensor, **_: sides.send(tensor)

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return sides.to(tensor, *args, **kwargs)

    torch.Tensor.to = to
    torch.Tensor.cpu = lambda tensor, **_: sides.to(tensor, "cpu")
    return sides
