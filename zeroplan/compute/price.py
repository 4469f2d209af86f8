"""Seconds of operations on one GPU."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from zeroplan.compute.gemm import gemm_seconds
from zeroplan.compute.gpu import GpuPrice
from zeroplan.records import dataclass, field
from zeroplan.units import FP8, Guess, Size, maximum
from zeroplan.workload.changes import Step
from zeroplan.workload.tape import Matmul, Operation

__all__ = ["FLOAT8_EFFICIENCY", "HALF_RATE_KEYS", "Work", "Works", "kernels", "work"]

HALF_RATE_KEYS: Final = Guess(
    name="keys at which fused attention reaches half its rate",
    value=450,
    rel_uncertainty=0.3,
    unit="1",
    source="causal FlashAttention-2 from 512 to 16,384 keys: 530 on A100 (arXiv 2307.08691, "
    "figure 4), 390 on H100 (arXiv 2407.08608, figure 5)",
)

FLOAT8_EFFICIENCY: Final = Guess(
    name="efficiency of fp8 matmuls over that of the compute dtype's",
    value=1.0,
    rel_uncertainty=0.25,
    unit="1",
    source="judgement: two float8 runs of torchtitan on H100 and H200 are then 4 and 14 % faster than "
    "said; with the profiles' fp8 rates, of inference kernels, they would be 11 and 34 %",
)

KEPT: Final = 4096
"""Operations that are kept with their prices: those of a hundred models. [count]"""

ATTENTION_BACKWARD_KERNELS: Final = 3
"""Preparation, gradients, conversion: flash attention's backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How long a run of operations takes, what of it by which kind of kernel, and its kernels."""

    seconds: Size
    matmul_seconds: Size
    attention_seconds: Size
    forward_kernels: int
    """Launched by forward and by what is computed again."""
    backward_kernels: int
    moved_bytes: Size = 0
    """What goes to the host or comes from there meanwhile. [B]"""


@dataclass(slots=True)
class Works:
    """Work on one GPU; an operation that many runs share is priced once."""

    gpu: GpuPrice
    fuses: bool = False
    known: dict[tuple[int, str], tuple[Operation, Size]] = field(default_factory=dict)
    """Seconds of operations by identity, which they keep as long as they are kept here."""

    def of(self, steps: Iterable[Step]) -> Work:
        """Time of a run of operations, whose kernels run one after the other.

        Compiled code fuses memory-bound operations that follow one another into one kernel.
        """
        total: Size = 0.0
        kinds: dict[str, Size] = {"matmul": 0.0, "attention": 0.0}
        counts = {"forward": 0, "backward": 0}
        steps = tuple(steps)
        for group in _groups(steps, fuses=self.fuses):
            step = group[0]
            count = kernels(step) if len(group) == 1 else 1
            seconds = maximum(self._seconds(group), count * self.gpu.kernel_seconds)
            total = total + seconds
            counts[step.direction] += count
            if step.operation.matmuls:
                kind = "attention" if step.operation.kernel == "attention" else "matmul"
                kinds[kind] = kinds[kind] + seconds
        return Work(
            seconds=total,
            matmul_seconds=kinds["matmul"],
            attention_seconds=kinds["attention"],
            forward_kernels=counts["forward"],
            backward_kernels=counts["backward"],
            moved_bytes=sum(step.moved_bytes for step in steps),
        )

    def _seconds(self, group: tuple[Step, ...]) -> Size:
        if len(group) > 1:
            return _seconds(group, self.gpu)
        operation, direction = group[0].operation, group[0].direction
        if len(self.known) == KEPT:
            self.known.clear()
        key = id(operation), direction
        if key not in self.known:
            self.known[key] = operation, _seconds(group, self.gpu)
        return self.known[key][1]


def work(steps: Iterable[Step], price: GpuPrice, *, fuses: bool = False) -> Work:
    """Time of a run of operations on a GPU."""
    return Works(price, fuses).of(steps)


def kernels(step: Step) -> int:
    """Count the kernels that a step launches."""
    operation = step.operation
    if step.direction == "cached" or operation.kernel == "none":
        return 0
    if step.direction == "forward":
        return max(1, len(operation.matmuls))
    if operation.kernel == "attention":
        return ATTENTION_BACKWARD_KERNELS
    return 0 if operation.passes_gradient else max(1, operation.wanted * len(operation.matmuls))


def _groups(steps: Iterable[Step], *, fuses: bool) -> Iterator[tuple[Step, ...]]:
    """Yield the steps that launch anything, those together that run in one kernel."""
    group: list[Step] = []
    for step in steps:
        if not kernels(step):
            continue
        joins = fuses and step.operation.kernel == "memory"
        if group and not (joins and group[-1].direction == step.direction):
            yield tuple(group)
            group.clear()
        group.append(step)
        if not joins:
            yield tuple(group)
            group.clear()
    if group:
        yield tuple(group)


def _seconds(group: tuple[Step, ...], price: GpuPrice) -> Size:
    step = group[0]
    operation = step.operation
    forward = step.direction == "forward"
    match operation.kernel:
        case "attention":
            return _attention_seconds(operation, price, forward=forward)
        case "matmul" | "scores":
            unpacking = _unpacking_bytes(operation) / price.bytes_per_second
            return _matmul_seconds(operation, price, forward=forward) + unpacking
        case _:
            return _traffic_bytes(group) / price.bytes_per_second


def _attention_seconds(operation: Operation, price: GpuPrice, *, forward: bool) -> Size:
    """Time of a fused kernel. [s]

    Its rate grows with the keys: tiles on the diagonal are half empty and short rows keep few
    multiprocessors busy. With k keys it is k / (k + k0) of the rate of long sequences, k0 being
    `HALF_RATE_KEYS`.
    """
    flop = operation.flop * operation.visible_share
    rate = price.attention_flop_per_second
    if not forward:
        flop, rate = flop * operation.backward_ratio, price.attention_backward_flop_per_second
    keys = operation.matmuls[0].n
    return flop / rate * (1.0 + HALF_RATE_KEYS.value / keys)


def _matmul_seconds(operation: Operation, price: GpuPrice, *, forward: bool) -> Size:
    """Forward its products; backward each product's gradients, by input and by weight. [s]

    The gradient of the input is an [m, n] by [n, k] product, that of the weight [n, m] by [m, k];
    a frozen weight needs none.
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
        asked = any(t.differentiable for t in operation.inputs)
        both: tuple[Matmul, ...] = (replace(product, m=n, n=k, k=m),)
        if operation.wanted == 1 and asked:
            again = max(0.0, operation.backward_ratio - 2) * gemm_seconds(product, itemsize, price)
            total = total + again + gemm_seconds(replace(product, n=k, k=n), itemsize, price)
            continue
        if asked:
            both = (*both, replace(product, n=k, k=n))
        seconds = sum(gemm_seconds(each, itemsize, price, speed=speed) for each in both)
        total = total + seconds * operation.backward_ratio / 2
    return total


def _unpacking_bytes(operation: Operation) -> Size:
    """HBM bytes of making a quantised weight whole: packed ones read, whole ones written. [B]"""
    packed = sum(p.elements * p.packed_itemsize for p in operation.parameters)
    return packed and packed + sum(m.n * m.k for m in operation.matmuls) * 2


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


def _traffic_bytes(group: tuple[Step, ...]) -> Size:
    """HBM bytes of a memory-bound kernel: what it reads and writes, each once. [B]

    What one of its operations hands to another stays in registers, unless autograd keeps it.
    Backward reads the saved tensors and the incoming gradients and writes the outgoing ones.
    """
    operations = [step.operation for step in group]
    saved = {id(t): t for op in operations for t in op.saved}
    used = {id(t): t for op in operations for t in op.inputs}
    made = {id(t): t for op in operations for t in op.outputs if t.base is None}
    forward = group[0].direction == "forward"
    inner = made.keys() & {id(t.storage) for t in used.values()}
    kept = {id(t.storage) for t in saved.values()} if forward else set[int]()
    read = sum(t.bytes for t in used.values() if id(t.storage) not in inner)
    written = sum(t.bytes for key, t in made.items() if key not in inner - kept)
    if forward:
        return read + written
    weights = sum(p.elements for operation in operations for p in operation.parameters)
    return sum(t.bytes for t in saved.values()) + read + written + 2 * weights
