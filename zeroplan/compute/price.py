"""Seconds of operations and copies on one GPU."""

from dataclasses import dataclass

from zeroplan.errors import SpecError
from zeroplan.hardware.profile import Gpu
from zeroplan.units import Size
from zeroplan.workload.liveness import Step
from zeroplan.workload.tape import Operation

__all__ = ["GpuPrice", "flop", "gpu_price", "step_seconds", "traffic_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """What a GPU achieves in one dtype."""

    peak_flop_per_second: float
    flop_per_second: float
    """Peak times the best matmul's share of it."""
    bytes_per_second: float
    """Memory bandwidth that large streaming kernels reach."""


def gpu_price(gpu: Gpu, dtype: str) -> GpuPrice:
    """Return a GPU's rates in a dtype; SpecError where it cannot compute in it."""
    peak = gpu.peak_flop_per_second.get(dtype)
    if peak is None:
        known = ", ".join(gpu.peak_flop_per_second)
        raise SpecError(
            f"training.compute_dtype: {dtype!r} is not computed by {gpu.id}; use one of {known}"
        )
    return GpuPrice(
        peak_flop_per_second=peak.value,
        flop_per_second=peak.value * gpu.matmul_efficiency.value,
        bytes_per_second=gpu.hbm_bytes_per_second.value * gpu.hbm_efficiency.value,
    )


def flop(step: Step) -> Size:
    """FLOPs that a step's kernels execute: masked scores are skipped by causal kernels. [FLOP]"""
    operation = step.operation
    if step.direction == "cached":
        return 0.0
    ratio = operation.backward_ratio if step.direction == "backward" else 1.0
    return operation.flop * operation.visible_share * ratio


def traffic_bytes(step: Step) -> Size:
    """HBM bytes of a memory-bound operation: what it reads and writes, each once. [B]

    Backward reads the saved tensors and the incoming gradients and writes the outgoing ones.
    """
    operation = step.operation
    if step.direction == "cached" or operation.kernel not in ("memory", "lookup"):
        return 0
    read = sum(t.bytes for t in operation.inputs)
    written = sum(t.bytes for t in operation.outputs if t.base is None)
    if step.direction == "forward":
        return read + written
    if operation.passes_gradient:
        return 0
    return sum(t.bytes for t in operation.saved) + read + written + _weights(operation)


def _weights(operation: Operation) -> Size:
    return sum(p.elements for p in operation.parameters) * (
        operation.outputs[0].itemsize if operation.outputs else 0
    )


def step_seconds(step: Step, price: GpuPrice) -> Size:
    """Time of one operation, compute-bound or memory-bound by its kind. [s]"""
    return flop(step) / price.flop_per_second + traffic_bytes(step) / price.bytes_per_second
