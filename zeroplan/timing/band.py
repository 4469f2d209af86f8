"""How far the step time may be off."""

from math import sqrt
from typing import Final

from zeroplan.comm.fabric import Fabric
from zeroplan.hardware.profile import Gpu
from zeroplan.hardware.quantity import Quantity
from zeroplan.timing.walk import Timing
from zeroplan.units import Guess

__all__ = ["RESIDUAL", "step_band"]

RESIDUAL: Final = Guess(
    name="what the model of the step leaves out",
    value=0.14,
    rel_uncertainty=0.5,
    unit="1",
    source="medians of 2 to 17 % on published runs of sources that were not fitted",
)
"""Half-width of the band that remains when every price is right, as a share of the step."""

EIGHTY_PERCENT: Final = 1.282 / 1.645
"""From the half-width that holds nine cases in ten to the one that holds eight (normal law)."""


def step_band(timing: Timing, gpu: Gpu, wires: Fabric) -> tuple[float, float]:
    """Low and high end of the band that should hold the step time in eight cases of ten. [s]

    Each part of the step varies by its price's uncertainty, independently of the others.
    """
    rest = timing.compute_seconds - timing.matmul_seconds - timing.attention_seconds
    inter = wires.inter if wires.inter.scope == "cluster" else wires.intra
    parts = (
        timing.matmul_seconds * _uncertainty(gpu.load_share),
        timing.attention_seconds * _uncertainty(gpu.attention_backward_efficiency),
        rest * _uncertainty(gpu.hbm_efficiency),
        timing.exposed_communication_seconds * _uncertainty(inter.bandwidth_efficiency),
        timing.step_seconds * RESIDUAL.value,
    )
    half = EIGHTY_PERCENT * sqrt(sum(part * part for part in parts))
    return timing.step_seconds - half, timing.step_seconds + half


def _uncertainty(quantity: Quantity) -> float:
    return quantity.rel_uncertainty or 0.0
