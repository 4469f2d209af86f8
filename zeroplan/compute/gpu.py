"""What a GPU achieves, taken from its profile for one dtype."""

from zeroplan.errors import SpecError
from zeroplan.hardware.profile import Gpu
from zeroplan.records import dataclass

__all__ = ["GpuPrice", "gpu_price"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """Rates and latencies of one GPU."""

    peak_flop_per_second: float
    flop_per_second: float
    """Peak times the share that large, deep matmuls reach in a training step."""
    matmul_depth: float
    """Depth at which a product takes twice as long per FLOP. [elements]"""
    matmul_start_seconds: float
    attention_flop_per_second: float
    """Peak times the share that fused attention reaches in a training step's forward."""
    attention_backward_flop_per_second: float
    """The same in backward."""
    bytes_per_second: float
    """Memory bandwidth that large streaming kernels reach."""
    overlap_slowdown: float
    """Share by which kernels take longer beside a collective, which takes multiprocessors, memory
    bandwidth and power."""
    float8_speed: float
    """Peak in fp8 over the peak in this dtype; 0 where the GPU has no fp8."""
    kernel_seconds: float
    """Shortest time from one small kernel to the next."""


def gpu_price(gpu: Gpu, dtype: str) -> GpuPrice:
    """Return a GPU's rates in a dtype; SpecError where it cannot compute in it."""
    peak = gpu.peak_flop_per_second.get(dtype)
    if peak is None:
        known = ", ".join(gpu.peak_flop_per_second)
        raise SpecError(
            f"training.compute_dtype: {dtype!r} is not computed by {gpu.id}; use one of {known}"
        )
    sustained = peak.value * gpu.load_share.value
    matmul = gpu.matmul_efficiency_by_dtype.get(dtype, gpu.matmul_efficiency)
    float8 = gpu.peak_flop_per_second.get("fp8")
    return GpuPrice(
        peak_flop_per_second=peak.value,
        flop_per_second=sustained * matmul.value,
        matmul_depth=gpu.matmul_depth_elements.value,
        matmul_start_seconds=gpu.matmul_start_seconds.value,
        attention_flop_per_second=sustained * gpu.attention_efficiency.value,
        attention_backward_flop_per_second=sustained * gpu.attention_backward_efficiency.value,
        bytes_per_second=gpu.hbm_bytes_per_second.value * gpu.hbm_efficiency.value,
        overlap_slowdown=gpu.overlap_slowdown.value,
        float8_speed=float8.value / peak.value if float8 is not None else 0.0,
        kernel_seconds=gpu.kernel_seconds.value,
    )
