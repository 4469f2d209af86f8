"""A host and a GPU on one machine without a GPU: copies between them are made and told apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.ledger import Ledger, Side

__all__ = ["two_sides"]


@contextmanager
def two_sides(ledger: Ledger, plan: Plan) -> Iterator[None]:
    """Let what FSDP copies between host and GPU change sides, where a plan offloads.

    It asks for such a copy by a device and `non_blocking`, and for nothing else in that way. On
    one device there would be no copy at all.
    """
    if not (plan.offload or plan.training.offload_activations):
        yield
        return
    ledger.updates_on_host = bool(plan.offload)
    original = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        crosses = "non_blocking" in kwargs and args and isinstance(args[0], torch.device)
        on_host = ledger.is_on_host(tensor)
        if not crosses or not (on_host or plan.offload):
            return original(tensor, *args, **kwargs)
        return moved(tensor, "device" if on_host else "host")

    def moved(tensor: torch.Tensor, side: Side) -> torch.Tensor:
        ledger.side = side
        try:
            return tensor.clone()
        finally:
            ledger.side = None

    def cpu(tensor: torch.Tensor) -> torch.Tensor:
        return moved(tensor, "host")

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        ledger.send_to_host([tensor])
        return tensor

    def synchronize(stream: torch.cpu.Stream) -> None:
        """Wait for nothing: a CPU has one stream."""

    with (
        patch.object(torch.Tensor, "to", to),
        patch.object(torch.Tensor, "cpu", cpu),
        patch.object(torch.Tensor, "pin_memory", pin_memory),
        patch.object(torch.cpu.Stream, "synchronize", synchronize, create=True),
    ):
        yield
