"""How sure it is that a strategy fits: what a device holds beyond tensors, and its margin.

A record has sums; the parts are found again by the steps of `zeroplan.memory.device`, backwards.
"""

from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.hardware.profile import Gpu
from zeroplan.memory.device import fragmentation, half_band
from zeroplan.records import dataclass
from zeroplan.units import Size

__all__ = ["Beyond", "beyond", "chosen", "probably_fits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """What a device holds beyond the tensors of its peak. [B]"""

    pools_bytes: Size
    """The highest levels of the streams' pools, less what is live at the peak."""
    kept_bytes: Size
    """What the allocator keeps beyond those levels."""
    context_bytes: Size
    nccl_bytes: Size
    half_band_bytes: Size
    """Half of the band of the device's memory."""


def beyond(allocated: Size, reserved: Size, device: Size, gpu: Gpu) -> Beyond:
    """Take the sums of a record apart.

    Parameters
    ----------
    allocated
        Tensors and workspaces at the peak. [B]
    reserved
        What the allocator holds. [B]
    device
        What the device holds. [B]
    gpu
        The GPU whose profile says what a context takes.

    """
    context = gpu.context_bytes.value
    pools = reserved / (1 + fragmentation(gpu).value)
    kept, nccl = reserved - pools, device - reserved - context
    return Beyond(
        pools_bytes=pools - allocated,
        kept_bytes=kept,
        context_bytes=context,
        nccl_bytes=nccl,
        half_band_bytes=half_band(kept, nccl, gpu),
    )


def probably_fits(each: StrategyEstimate) -> bool:
    """Whether it fits, or is tight with its figure below the limit."""
    return each.fits and (each.memory.headroom_bytes or 0) >= 0


def chosen(answer: Estimate) -> StrategyEstimate:
    """Return the fastest that probably fits, else one that perhaps does, else the nearest to it."""
    nearest = max(answer.estimates, key=lambda each: each.memory.headroom_bytes or 0)
    timed = [each for each in answer.estimates if each.time.step_seconds and probably_fits(each)]
    return min(
        timed, key=lambda each: each.time.step_seconds or 0.0, default=answer.fastest or nearest
    )
