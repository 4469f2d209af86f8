"""How far the step time may be off."""

from typing import Final

from zeroplan.comm.collectives import bandwidth_uncertainty
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.offload import OFFLOAD_UNCERTAINTY
from zeroplan.hardware.profile import Gpu
from zeroplan.hardware.quantity import Quantity
from zeroplan.sharding.groups import Group
from zeroplan.timing.host import FORWARD
from zeroplan.timing.walk import Timing
from zeroplan.units import Guess, Size, maximum

__all__ = ["FASTER", "SLOWER", "step_band"]

HELD_OUT: Final = (
    "tenth and ninetieth percentile of published runs on A100 and H100, each source predicted by "
    "constants that were fitted without it"
)

FASTER: Final = Guess(
    name="share by which one step in ten is shorter than predicted",
    value=0.12,
    rel_uncertainty=0.5,
    unit="1",
    source=HELD_OUT,
)
SLOWER: Final = Guess(
    name="share by which one step in ten is longer than predicted",
    value=0.25,
    rel_uncertainty=0.5,
    unit="1",
    source=HELD_OUT,
)
"""More than the other: what the model leaves out takes time."""

EIGHTY_PERCENT: Final = 1.282 / 1.645
"""From the half-width that holds nine cases in ten to the one that holds eight (normal law)."""


def step_band(timing: Timing, gpu: Gpu, wires: Fabric, world: Group) -> tuple[Size, Size]:
    """Low and high end of the band that should hold the step time in eight cases of ten. [s]

    What remains when every price was fitted is widened by the parts of the step whose price is
    assumed, by what is exposed on the links that join all ranks and by the gaps that wait for the
    host: each by its uncertainty, independently of the others.
    """
    rest = timing.compute_seconds - timing.matmul_seconds - timing.attention_seconds
    exposed = maximum(0.0, timing.exposed_communication_seconds)
    parts = (
        timing.matmul_seconds * _assumed(gpu.load_share),
        timing.matmul_seconds * _assumed(gpu.matmul_efficiency),
        timing.attention_seconds * _assumed(gpu.attention_backward_efficiency),
        (rest - timing.host_seconds) * _assumed(gpu.hbm_efficiency),
        timing.host_seconds * FORWARD.rel_uncertainty,
        exposed * bandwidth_uncertainty(world, wires),
        timing.exposed_offload_seconds * OFFLOAD_UNCERTAINTY,
    )
    spread = EIGHTY_PERCENT**2 * sum(part * part for part in parts)
    step = timing.step_seconds
    below, above = (((step * end.value) ** 2 + spread) ** 0.5 for end in (FASTER, SLOWER))
    return maximum(0.0, step - below), step + above


def _assumed(quantity: Quantity) -> float:
    """Return the uncertainty of a price that no run was fitted to, nor anybody measured."""
    return (quantity.rel_uncertainty or 0.0) if quantity.kind == "assumed" else 0.0
