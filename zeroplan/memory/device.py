"""From live tensors to what the driver shows: workspaces, allocator, context, NCCL."""

from collections.abc import Mapping
from typing import Final, Literal

from zeroplan.hardware import Quantity
from zeroplan.hardware.profile import Gpu
from zeroplan.records import dataclass
from zeroplan.schedule.events import Pool
from zeroplan.units import GIB, MIB, Guess, Size, floor, round_up

__all__ = [
    "COMMUNICATOR_BYTES",
    "FRAGMENTATION",
    "DeviceMemory",
    "device_memory",
    "fragmentation",
    "half_band",
    "verdict_on",
]


FRAGMENTATION: Final = Guess(
    name="fragmentation of a stream's memory pool",
    value=0.10,
    rel_uncertainty=1.0,
    unit="1",
    source="torchtitan's four runs of 2024 (benchmarks/llama3_h100_202412), met within 1.3 %; steps "
    "replayed into a model of the caching allocator: 0 to 29 %; `zeroplan explain` replays yours",
)
"""Reserved over the highest that a pool's blocks reach, less one."""

SEGMENT_BYTES: Final = 2 * MIB
"""Large requests are rounded up to this (c10/core/AllocatorConfig.h, 2.13)."""

COMMUNICATOR_BYTES: Final = Guess(
    name="NCCL memory per communicator",
    value=1.0 * GIB,
    rel_uncertainty=0.5,
    unit="B",
    source="0.54 to 0.69 GB (nccl#964), 1.6 GB (nccl#864), 1 GiB (LUMI#111)",
)

HANDLES: Final = 2
"""cuBLAS handles that run matmuls: forward's thread and autograd's (pytorch#144397)."""

Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What a GPU holds beyond live tensors. [B]"""

    workspaces_bytes: Size
    allocated_bytes: Size
    """What `torch.cuda.max_memory_allocated()` shows."""
    reserved_bytes: Size
    device_bytes: Size
    """What `nvidia-smi` shows."""
    half_band_bytes: Size
    """Half of the band of `device_bytes`."""
    usable_bytes: Size

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return verdict_on(self.device_bytes, self.half_band_bytes, self.usable_bytes)


def fragmentation(gpu: Gpu) -> Quantity | Guess:
    """Return what was measured on the GPU, else the guess."""
    return FRAGMENTATION if gpu.fragmentation is None else gpu.fragmentation


def verdict_on(size: Size, half_band: Size, limit: Size) -> Verdict:
    """Whether so many bytes fit: tight where their band crosses the limit."""
    if size + half_band <= limit:
        return "fits"
    return "tight" if size - half_band <= limit else "does_not_fit"


def half_band(kept: Size, nccl: Size, gpu: Gpu) -> Size:
    """Return half of the band of what the allocator keeps, NCCL and the context take. [B]"""
    context = gpu.context_bytes
    return (
        kept * (fragmentation(gpu).rel_uncertainty or 0.0)
        + nccl * COMMUNICATOR_BYTES.rel_uncertainty
        + context.value * (context.rel_uncertainty or 0.0)
    )


def device_memory(
    tensors_bytes: Size, pools_bytes: Mapping[Pool, Size], gpu: Gpu, communicators: int
) -> DeviceMemory:
    """Add what is not a tensor to the peak of the tensors.

    Reserved memory is the sum of what each stream's pool reached, at whatever moment: a block
    freed on one stream is not given to another.
    """
    workspaces = HANDLES * int(gpu.cublas_workspace_bytes.value)
    allocated = tensors_bytes + workspaces
    pools = workspaces + sum(round_up(size, SEGMENT_BYTES) for size in pools_bytes.values())
    slack = pools * fragmentation(gpu).value
    nccl = communicators * COMMUNICATOR_BYTES.value
    context = gpu.context_bytes
    reserved = pools + floor(slack)
    return DeviceMemory(
        workspaces_bytes=workspaces,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=reserved + int(nccl + context.value),
        half_band_bytes=floor(half_band(slack, nccl, gpu)),
        usable_bytes=int(gpu.usable_bytes.value),
    )
