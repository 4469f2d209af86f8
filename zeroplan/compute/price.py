"""Seconds of operations on one GPU."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from zeroplan.compute.gemm import gemm_seconds
from zeroplan.compute.gpu import GpuPrice
from zeroplan.records import dataclass
from zeroplan.units import FP8, Guess, Size, maximum
from zeroplan.workload.changes import Step
from zeroplan.workload.tape import Matmul, Operation

__all__ = ["DISPATCH", "FLOAT8_EFFICIENCY", "Work", "work"]

DISPATCH: Final = Guess(
    name="PyTorch's time to issue one kernel",
    value=6e-6,
    rel_uncertainty=0.5,
    unit="s",
    source="judgement: 4 to 10 us per operator in eager mode",
)
"""The host runs ahead of the GPU unless kernels are shorter than this."""

FLOAT8_EFFICIENCY: Final = Guess(
    name="efficiency of fp8 matmuls over that of the compute dtype's",
    value=1.0,
    rel_uncertainty=0.25,
    unit="1",
    source="judgement: large products on an H100 reach 0.75 times that in published timings, "
    "0.87 at best (aiconfigurator), casts of their inputs included",
)

ATTENTION_BACKWARD_KERNELS: Final = 3
"""Preparation, gradients, conversion: flash attention's backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How long a run of operations takes, and what of it by which kind of kernel. [s]"""

    seconds: Size
    matmul_seconds: Size
    attention_seconds: Size


def work(steps: Iterable[Step], price: GpuPrice) -> Work:
    """Time of a run of operations.

    Kernels run one after the other; where they are short the host, which needs `DISPATCH` for
    each, is what bounds the run.
    """
    total, kernels = 0.0, 0
    kinds: dict[str, Size] = {"matmul": 0.0, "attention": 0.0}
    for step in steps:
        count = _kernels(step)
        if not count:
            continue
        seconds = maximum(_seconds(step, price), count * price.kernel_seconds)
        total = total + seconds
        kernels += count
        if step.operation.matmuls:
            kind = "attention" if step.operation.kernel == "attention" else "matmul"
            kinds[kind] = kinds[kind] + seconds
    return Work(
        seconds=maximum(total, kernels * DISPATCH.value),
        matmul_seconds=kinds["matmul"],
        attention_seconds=kinds["attention"],
    )


def _kernels(step: Step) -> int:
    """Count the kernels that a step launches."""
    operation = step.operation
    if step.direction == "cached" or operation.kernel == "none":
        return 0
    if step.direction == "forward":
        return max(1, len(operation.matmuls))
    if operation.kernel == "attention":
        return ATTENTION_BACKWARD_KERNELS
    return 0 if operation.passes_gradient else max(1, 2 * len(operation.matmuls))


def _seconds(step: Step, price: GpuPrice) -> Size:
    operation = step.operation
    forward = step.direction == "forward"
    match operation.kernel:
        case "attention":
            flop = operation.flop * operation.visible_share
            if forward:
                return flop / price.attention_flop_per_second
            ratio = operation.backward_ratio
            return flop * ratio / price.attention_backward_flop_per_second
        case "matmul" | "scores":
            return _matmul_seconds(operation, price, forward=forward)
        case _:
            return _traffic_bytes(step) / price.bytes_per_second


def _matmul_seconds(operation: Operation, price: GpuPrice, *, forward: bool) -> Size:
    """Forward its products; backward each product's gradients, by input and by weight. [s]

    The gradient of the input is an [m, n] by [n, k] product, that of the weight [n, m] by [m, k].
    """
    itemsize = operation.inputs[0].itemsize if operation.inputs else 2
    speed = price.float8_speed * FLOAT8_EFFICIENCY.value if operation.float8 else 1.0
    total = _cast_bytes(operation, itemsize, forward=forward) / price.bytes_per_second
    itemsize = FP8 if operation.float8 else itemsize
    for product in operation.matmuls:
        if forward:
            total = total + gemm_seconds(product, itemsize, price, speed=speed)
            continue
        m, n, k = product.m, product.n, product.k
        both: tuple[Matmul, ...] = (replace(product, m=n, n=k, k=m),)
        if any(t.differentiable for t in operation.inputs):
            both = (*both, replace(product, n=k, k=n))
        seconds = sum(gemm_seconds(each, itemsize, price, speed=speed) for each in both)
        total = total + seconds * operation.backward_ratio / 2
    return total


def _cast_bytes(operation: Operation, itemsize: int, *, forward: bool) -> Size:
    """HBM bytes of the casts around fp8 products, compiled (judgement). [B]

    A cast reads a tensor and writes it in fp8. Its scale is taken by the kernel that made it, but a
    weight and what a product made are read once more for that. Backward casts input and weight
    again, into other layouts, and the gradient into two at once.
    """
    if not operation.float8:
        return 0.0
    traffic: Size = 0
    for product in operation.matmuls:
        weight, given = product.k * product.n, product.m * product.k
        traffic = traffic + (weight + given) * (itemsize + FP8)
        if forward:
            traffic = traffic + weight * itemsize
        else:
            traffic = traffic + product.m * product.n * 2 * (itemsize + FP8)
    return traffic


def _traffic_bytes(step: Step) -> Size:
    """HBM bytes of a memory-bound operation: what it reads and writes, each once. [B]

    Backward reads the saved tensors and the incoming gradients and writes the outgoing ones.
    """
    operation = step.operation
    read = sum(t.bytes for t in operation.inputs)
    written = sum(t.bytes for t in operation.outputs if t.base is None)
    if step.direction == "forward":
        return read + written
    weights = sum(p.elements for p in operation.parameters)
    return sum(t.bytes for t in operation.saved) + read + written + 2 * weights
