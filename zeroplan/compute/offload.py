"""How fast one rank reaches its host: PCIe, the CPU's memory, a drive."""

from collections.abc import Iterator, Mapping
from typing import Final

from zeroplan.hardware.profile import Gpu
from zeroplan.records import dataclass
from zeroplan.schedule.events import Route
from zeroplan.spec.run import ShardingChoice
from zeroplan.units import GIGA, Guess

__all__ = ["OFFLOAD_UNCERTAINTY", "OffloadPrice", "offload_guesses", "offload_price"]

PINNED: Final = Guess(
    name="share of the host link that copies from pinned memory reach",
    value=0.8,
    rel_uncertainty=0.2,
    unit="1",
    source="25 GB/s of PCIe 4's 31.5 (meta-pytorch/torchtune#993)",
)
PAGEABLE: Final = Guess(
    name="share of the host link that copies from pageable memory reach",
    value=0.3,
    rel_uncertainty=0.5,
    unit="1",
    source="judgement: staged through a pinned buffer by one CPU thread",
)
FUSED: Final = Guess(
    name="host memory traffic of a fused CPU update, per node",
    value=117 * GIGA,
    rel_uncertainty=0.5,
    unit="B/s",
    source="judgement: half of what two sockets with six channels of DDR4 carry (256 GB/s)",
)
PLAIN: Final = Guess(
    name="host memory traffic of a CPU update that is not fused, per node",
    value=20 * GIGA,
    rel_uncertainty=0.5,
    unit="B/s",
    source="judgement: DeepSpeedCPUAdam is 5 to 7 times as fast as torch's "
    "(deepspeed.ai/tutorials/zero-offload)",
)
NVME: Final = Guess(
    name="traffic of a node's drives",
    value=5 * GIGA,
    rel_uncertainty=0.6,
    unit="B/s",
    source="judgement: one PCIe 4 drive reads 7 GB/s and writes 4",
)
HOST_LINK: Final = Guess(
    name="line rate between GPU and host",
    value=31.5 * GIGA,
    rel_uncertainty=0.5,
    unit="B/s",
    source="judgement: PCIe 4 x16, where the profile of the GPU does not say",
)
OFFLOAD_UNCERTAINTY: Final = 0.5
"""Half-width of the band around what offloading adds to a step, as a share of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPrice:
    """Rates of one rank when all ranks of its node do the same."""

    bytes_per_second: Mapping[Route, float]


def offload_price(gpu: Gpu, ranks_per_node: int) -> OffloadPrice:
    """Return the rates of a rank: each GPU has a link of its own, memory and drives are shared."""
    known = gpu.host_link_bytes_per_second
    link = HOST_LINK.value if known is None else known.value
    return OffloadPrice(
        bytes_per_second={
            "pinned copy": link * PINNED.value,
            "pageable copy": link * PAGEABLE.value,
            "fused update": FUSED.value / ranks_per_node,
            "update": PLAIN.value / ranks_per_node,
            "nvme": NVME.value / ranks_per_node,
        }
    )


def offload_guesses(gpu: Gpu, choice: ShardingChoice) -> Iterator[Guess]:
    """List what the rates rest on, where a run offloads."""
    if gpu.host_link_bytes_per_second is None:
        yield HOST_LINK
    yield PINNED if choice.offload_pin_memory else PAGEABLE
    yield from (FUSED, PLAIN)
    if "nvme" in (choice.offload_optimizer, choice.offload_parameters):
        yield NVME
