"""What watches a step: levels of memory, or the clock. A `Ledger` is a meter too."""

from collections.abc import Iterable
from time import perf_counter
from typing import Protocol

import torch

from zeroplan.units import round_up
from zeroplan.validate.pytorch.ledger import storage_of
from zeroplan.validate.record import Phase

__all__ = ["AllocatorMeter", "Clock", "Meter", "NoMeter"]


class Meter(Protocol):
    """Knows how much lives, and is told when a phase begins."""

    @property
    def total(self) -> int:
        """What lives now. [B]"""

    @property
    def peaks(self) -> dict[Phase, tuple[int, str]]:
        """The highest level of each phase, and the moment of it where that is known."""

    def begin(self, phase: Phase) -> None:
        """Open a phase; it may be one that was open before."""

    def forget(self) -> None:
        """Let the peaks begin anew."""

    def bytes_of(self, tensors: Iterable[torch.Tensor]) -> int:
        """Sum the storages of tensors, each once. [B]"""


class NoMeter:
    """Watches nothing."""

    total = 0
    peaks: dict[Phase, tuple[int, str]]

    def __init__(self) -> None:
        self.peaks = {}

    def begin(self, phase: Phase) -> None:
        """Let a phase begin."""

    def forget(self) -> None:
        """Know nothing."""

    def bytes_of(self, tensors: Iterable[torch.Tensor]) -> int:  # noqa: ARG002  # the signature is the others'
        """Return nothing."""
        return 0


class AllocatorMeter:
    """The CUDA caching allocator's own figures: `torch.cuda.max_memory_allocated()` by phase."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.phase: Phase | None = None
        self.seen: dict[Phase, tuple[int, str]] = {}

    @property
    def total(self) -> int:
        """What the allocator has handed out. [B]"""
        return torch.cuda.memory_allocated(self.device)

    @property
    def peaks(self) -> dict[Phase, tuple[int, str]]:
        """The highest level of each phase, the open one up to now."""
        self._note()
        return self.seen

    def begin(self, phase: Phase) -> None:
        """Open a phase; the allocator's peak starts anew from what lives."""
        self._note()
        self.phase = phase
        torch.cuda.reset_peak_memory_stats(self.device)

    def forget(self) -> None:
        """Let the peaks begin anew."""
        self.phase = None
        self.seen.clear()

    def bytes_of(self, tensors: Iterable[torch.Tensor]) -> int:
        """Sum the storages of tensors, each once. [B]"""
        storages = {id(each): each for each in map(storage_of, tensors)}
        here = (each for each in storages.values() if each.device.type == self.device.type)
        return int(sum(round_up(each.size()) for each in here))

    def _note(self) -> None:
        if self.phase is not None:
            level = torch.cuda.max_memory_allocated(self.device)
            known = self.seen.get(self.phase, (-1, ""))[0]
            self.seen[self.phase] = (max(level, known), "")


class Clock(NoMeter):
    """Notes when each phase begins: by events on a GPU's stream, else by the host's clock."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.on_gpu = device.type == "cuda"
        self.marks: list[tuple[Phase | None, float | torch.cuda.Event]] = []

    def begin(self, phase: Phase) -> None:
        """Note the start of a phase."""
        self.mark(phase)

    def mark(self, phase: Phase | None = None) -> None:
        """Note this moment; without a phase it is the end of a step."""
        if not self.on_gpu:
            self.marks.append((phase, perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append((phase, event))

    def seconds(self) -> tuple[list[float], list[float]]:
        """Return how long each step took, and its optimizer; the GPU must have come to its end."""
        steps, optimizers = list[float](), list[float]()
        begin = self.marks[0][1]
        update = begin
        for phase, moment in self.marks[1:]:
            if phase == "optimizer":
                update = moment
            if phase is None:
                steps.append(_between(begin, moment))
                optimizers.append(_between(update, moment))
                begin = update = moment
        return steps, optimizers


def _between(begin: float | torch.cuda.Event, end: float | torch.cuda.Event) -> float:
    if isinstance(begin, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return begin.elapsed_time(end) * 1e-3  # it tells milliseconds
    if isinstance(begin, float) and isinstance(end, float):
        return end - begin
    raise TypeError
