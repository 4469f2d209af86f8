"""Which states a strategy keeps off the GPU, and what it cannot keep off it.

Sources: `DeepSpeedZeroOptimizer.__init__` in deepspeed/runtime/zero/stage_1_and_2.py, which keeps
the optimizer in host memory whatever device is named, `offload_config.py` beside it (0.19.8);
`CPUOffloadPolicy` in torch/distributed/fsdp/_fully_shard/_fsdp_api.py and `CPUOffload` in
torch/distributed/fsdp/api.py (2.13), which move all states or none.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass, replace
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import DeepSpeed, Offload, ShardingChoice, TrainingChoice
from zeroplan.units import Size, power_of_two

__all__ = [
    "RESIDENT",
    "HostBuffer",
    "Offloading",
    "offload_notes",
    "offloading",
    "updated_on_host",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloading:
    """Where the states of a strategy live: none is the GPU."""

    parameters: Offload = "none"
    gradients: Offload = "none"
    optimizer: Offload = "none"
    pinned: bool = True
    by_torch: bool = False
    """Whether torch.optim updates on the CPU (FSDP), which is not foreach there by itself."""

    def __bool__(self) -> bool:
        """Whether anything is off the GPU."""
        return self.parameters != "none" or self.optimizer != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBuffer:
    """Equal tensors that a rank holds in host memory."""

    name: str
    bytes: Size
    """Of one tensor. [B]"""
    times: Size = 1
    pinned: bool = False

    @property
    def held_bytes(self) -> Size:
        """What they take: pinned memory comes in powers of two. [B]

        Source: `CachingHostAllocatorImpl::allocate` in aten/src/ATen/core/CachingHostAllocator.h
        (2.13) rounds a request up with `llvm::PowerOf2Ceil`.
        """
        return (power_of_two(self.bytes) if self.pinned else self.bytes) * self.times


RESIDENT: Final = Offloading()
"""All states on the GPU."""


def offloading(row: Sharding, choice: ShardingChoice) -> Offloading:
    """Return what a strategy keeps off the GPU of what was asked; SpecError if it was named.

    Where strategies are laid side by side, one that cannot do as asked runs without, or with its
    optimizer alone; `offload_notes` says so.
    """
    obstacle = _obstacle(row, choice)
    if obstacle and choice.strategy is not None:
        raise SpecError(obstacle)
    if obstacle and not _in_part(row, choice):
        return RESIDENT
    optimizer, parameters = choice.offload_optimizer, choice.offload_parameters
    if row.offloads == "everything":
        optimizer = parameters
    elif row.offloads == "optimizer":
        parameters = "none"
    # ZeRO-1 accumulates whole gradients on the GPU until the boundary.
    gradients = optimizer if row.divides_gradients else "none"
    return Offloading(
        parameters=parameters,
        gradients="cpu" if gradients == "nvme" else gradients,
        optimizer=optimizer,
        pinned=choice.offload_pin_memory,
        by_torch=row.offloads == "everything" and optimizer != "none",
    )


def offload_notes(rows: Iterable[Sharding], choice: ShardingChoice) -> Iterator[str]:
    """Say which of several strategies offload less than was asked for."""
    for row in rows:
        obstacle = _obstacle(row, choice)
        if obstacle:
            does = "offloads its optimizer alone" if _in_part(row, choice) else "does not offload"
            yield f"{row.strategy} {does}: {obstacle}"


def _in_part(row: Sharding, choice: ShardingChoice) -> bool:
    """Whether a strategy can offload the optimizer, but not the parameters."""
    return row.offloads == "optimizer" and choice.offload_optimizer == "cpu"


def _obstacle(row: Sharding, choice: ShardingChoice) -> str:
    """Say why a strategy cannot offload as asked, and what can; nothing if it can."""
    optimizer, parameters = choice.offload_optimizer, choice.offload_parameters
    if optimizer == parameters == "none":
        return ""
    if row.offloads == "nothing":
        return (
            f"sharding.offload_{'optimizer' if optimizer != 'none' else 'parameters'}: "
            f"{row.strategy} keeps its states on the GPU; use zero1, zero2, zero3, fsdp1 or fsdp2."
        )
    if row.offloads == "everything":
        return _obstacle_of_fsdp(row, optimizer, parameters)
    if row.offloads == "optimizer":
        return _obstacle_of_whole_parameters(row, optimizer, parameters)
    return _obstacle_of_settings(choice.deepspeed)


def _obstacle_of_settings(settings: DeepSpeed) -> str:
    if settings.offload_optimizer_ratio < 1:
        return (
            f"sharding.deepspeed.offload_optimizer_ratio = {settings.offload_optimizer_ratio}: an "
            "update shared between CPU and GPU is not modelled by this version; use 1."
        )
    quantizes = settings.zero_quantized_weights or settings.zero_quantized_gradients
    if quantizes or settings.zero_hpz_partition_size > 1:
        return (
            "sharding.offload_optimizer, offload_parameters: ZeRO++ (zero_hpz_partition_size, "
            "zero_quantized_weights, zero_quantized_gradients) is not modelled with offloading by "
            "this version; set one of the two otherwise."
        )
    return ""


def _obstacle_of_whole_parameters(row: Sharding, optimizer: Offload, parameters: Offload) -> str:
    if parameters != "none":
        return (
            f"sharding.offload_parameters = {parameters}: {row.strategy} holds whole parameters "
            "on the GPU; use zero3, or offload_optimizer alone."
        )
    if optimizer == "nvme":
        return (
            f"sharding.offload_optimizer = nvme: {row.strategy} keeps it in host memory all the "
            "same (DeepSpeed 0.19.8); use cpu, or zero3."
        )
    return ""


def _obstacle_of_fsdp(row: Sharding, optimizer: Offload, parameters: Offload) -> str:
    if parameters == "nvme":
        return (
            f"sharding.offload_parameters = nvme: {row.strategy} offloads to host memory only; "
            "use cpu, or zero3."
        )
    if parameters == "none":
        return (
            f"sharding.offload_optimizer = {optimizer}: {row.strategy} offloads parameters, "
            "gradients and states together; set offload_parameters = cpu, or use zero3."
        )
    return ""


def updated_on_host(held: Dtypes, training: TrainingChoice, *, by_torch: bool) -> Dtypes:
    """Return how the CPU updates: torch.optim goes parameter by parameter there by itself."""
    if held.rule.update == "one kernel":
        raise SpecError(
            f"training.optimizer = {training.optimizer} updates on a GPU, but is asked to be "
            "offloaded: use adamw, or leave it on the GPU."
        )
    if held.rule.update == "muon":
        raise SpecError(
            "training.optimizer = muon exchanges its matrices between GPUs, but is asked to be "
            "offloaded, which is not modelled: use adamw, or leave it on the GPU."
        )
    if by_torch and training.optimizer_implementation is None and held.rule.update == "adam":
        return replace(held, implementation="for-loop")
    return held
