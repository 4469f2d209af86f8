"""What the host needs to issue work: it bounds a step of small kernels.

Eager PyTorch runs Python and the dispatcher for every operation, autograd's engine for every
gradient, and the frameworks run hooks around modules and collectives. The host goes ahead of the
GPU; where it needs longer than the kernels do, the GPU waits for it.
"""

from typing import Final

from zeroplan.compute.price import Work
from zeroplan.records import dataclass
from zeroplan.schedule.events import Event
from zeroplan.sharding.strategies import Sharding
from zeroplan.units import Guess, Size
from zeroplan.workload.changes import Step

__all__ = ["NO_HOST", "HostPrice", "host_guesses", "host_price"]

FORWARD: Final = Guess(
    name="host time of an operation in forward",
    value=50e-6,
    rel_uncertainty=0.5,
    unit="s",
    source="gpt-fast's eager Llama-2-7B on A100, 25.5 tokens/s, is 1.2 ms for the 21 to 31 "
    "operations of a block (pytorch.org, Accelerating Generative AI II); views and Python included",
)
BACKWARD: Final = Guess(
    name="host time of a kernel in backward",
    value=30e-6,
    rel_uncertainty=0.5,
    unit="s",
    source="0.6 of an operation in forward: blocks of transformers 5.24 timed on a CPU",
)
COMPILED: Final = Guess(
    name="host time of a kernel in compiled code",
    value=12e-6,
    rel_uncertainty=0.5,
    unit="s",
    source="judgement: generated code calls each kernel from Python, without the dispatcher",
)
CHECKPOINT: Final = Guess(
    name="host time of a checkpoint",
    value=0.3e-3,
    rel_uncertainty=0.5,
    unit="s",
    source="reentrant checkpoints of PyTorch 2.13 timed on a CPU, 0.18 to 0.3 ms",
)
COLLECTIVE: Final = Guess(
    name="host time of a collective of FSDP with its hooks",
    value=0.3e-3,
    rel_uncertainty=0.5,
    unit="s",
    source="units of PyTorch 2.13 timed on a CPU, 0.25 to 0.4 ms",
)
GATHER: Final = Guess(
    name="host time of a collective of ZeRO-3",
    value=0.2e-3,
    rel_uncertainty=0.5,
    unit="s",
    source="judgement: as one of FSDP without its hooks; partitions are sliced and freed one by one",
)
GRADIENT: Final = Guess(
    name="host time of a gradient's hook",
    value=15e-6,
    rel_uncertainty=0.5,
    unit="s",
    source="DDP of PyTorch 2.13 and ZeRO-1 of DeepSpeed 0.19.8 timed on a CPU, 10 to 16 us",
)
MODULE: Final = Guess(
    name="host time of ZeRO-3's hooks around a module with parameters",
    value=0.28e-3,
    rel_uncertainty=0.5,
    unit="s",
    source="DeepSpeed 0.19.8 timed on a CPU, 0.24 to 0.35 ms, the modules around it included",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPrice:
    """Host time by what is issued. [s]"""

    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    collective_seconds: float = 0.0
    gradient_seconds: float = 0.0
    module_seconds: float = 0.0

    def steps_seconds(self, steps: tuple[Step, ...], work: Work) -> float:
        """Time in which the host issues operations: their kernels and the hooks around them. [s]"""
        kernels = work.forward_kernels * self.forward_seconds
        kernels += work.backward_kernels * self.backward_seconds
        gradients = sum(len(step.gradients) for step in steps)
        modules = sum(_in_module(step) for step in steps)
        return kernels + gradients * self.gradient_seconds + modules * self.module_seconds

    def event_seconds(self, event: Event, work: Work) -> Size:
        """Time in which the host issues what an event does besides its operations. [s]"""
        seconds = event.launches * self.backward_seconds
        if event.collective is not None:
            seconds += self.collective_seconds
        if event.phase == "backward" and work.forward_kernels:
            seconds += self.checkpoint_seconds
        return seconds


def _in_module(step: Step) -> bool:
    """Whether hooks fire around a step."""
    return bool(step.operation.module) and step.direction != "cached"


NO_HOST: Final = HostPrice()
"""A host that takes no time."""


def host_guesses(row: Sharding, *, compiled: bool) -> dict[str, Guess]:
    """Return the figures that count under a strategy, by field of the price."""
    found = {
        "forward_seconds": COMPILED if compiled else FORWARD,
        "backward_seconds": COMPILED if compiled else BACKWARD,
        "checkpoint_seconds": CHECKPOINT,
    }
    if row.framework in ("fsdp1", "fsdp2"):
        found["collective_seconds"] = COLLECTIVE
    elif row.distributed:
        found["gradient_seconds"] = GRADIENT
    if row.framework == "deepspeed" and row.divides_parameters:
        found |= {"module_seconds": MODULE, "collective_seconds": GATHER}
    return found


def host_price(row: Sharding, *, compiled: bool) -> HostPrice:
    """Return what issuing costs under a strategy."""
    guesses = host_guesses(row, compiled=compiled)
    return HostPrice(**{name: guess.value for name, guess in guesses.items()})
