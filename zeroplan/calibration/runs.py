"""What records of runs show, and what today's prediction says of the same."""

from zeroplan.estimation.answer import answer
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import Gpu
from zeroplan.memory.device import fragmentation
from zeroplan.records import dataclass, replace

__all__ = ["RunPoint", "compute_seconds", "pools_bytes"]

NO_SLOWDOWN = 1e-9
"""A rank that runs alone has no collective beside its kernels. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPoint:
    """One real run on a GPU."""

    name: str
    question: Question
    alone: bool
    """Whether the other ranks were pretended, so that no collective took its time."""
    compute_seconds: float | None
    reserved_bytes: float | None


def compute_seconds(run: RunPoint, gpu: Gpu) -> float:
    """Return how long the run should compute on a GPU with these constants: all but waiting. [s]"""
    if run.alone:
        gpu = replace(gpu, overlap_slowdown=replace(gpu.overlap_slowdown, value=NO_SLOWDOWN))
    time = _estimate(run, gpu).time
    return (time.step_seconds or 0.0) - (time.exposed_communication_seconds or 0.0)


def pools_bytes(run: RunPoint, gpu: Gpu) -> float:
    """Return what the allocator's pools should reach together. [B]"""
    reserved = _estimate(run, gpu).memory.reserved_bytes or 0
    return reserved / (1 + fragmentation(gpu).value)


def _estimate(run: RunPoint, gpu: Gpu) -> StrategyEstimate:
    (estimate,) = answer(replace(run.question, gpu=gpu)).estimates
    return estimate
