"""Kernels by themselves: collectives, the model's matrix products, copies within the memory."""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Final

import torch
import torch.distributed as dist

from zeroplan.schedule.plan import Plan
from zeroplan.units import GIB, MIB
from zeroplan.validate.measurement import (
    CollectivePoint,
    CopyPoint,
    MicroBenches,
    ProductPoint,
    Spread,
    spread,
)
from zeroplan.validate.pytorch.environment import DTYPES

__all__ = ["micro_benches"]

REPEATS: Final = 5
"""Times that a figure is taken, after one that warms up. [count]"""
FEW: Final = 5
MANY: Final = 20
"""Calls that one time is the mean of: of large messages, and of small ones. [count]"""
SMALL_BYTES: Final = MIB
SMALLEST_BYTES: Final = 4096
LARGEST_BYTES: Final = {"cuda": GIB, "cpu": 16 * MIB}
STEP: Final = 4
"""Each message is so many times the one before."""
COPIES_BYTES: Final = {"cuda": (64 * MIB, 256 * MIB, GIB), "cpu": (16 * MIB,)}
ITEMSIZE: Final = 4
"""Of the fp32 that collectives carry here. [B]"""

Product = tuple[int, int, int]
"""Rows, inner extent, columns."""


def micro_benches(plan: Plan, device: torch.device, *, collectives: bool) -> MicroBenches:
    """Time kernels on this rank's device; every rank must be here where collectives are."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    alone = dist.get_world_size() == 1
    return MicroBenches(
        collectives=tuple(_collectives(plan, device)) if collectives and not alone else (),
        products=tuple(_products(plan, device)),
        copies=tuple(_copies(device)),
    )


def _collectives(plan: Plan, device: torch.device) -> Iterator[CollectivePoint]:
    world = plan.groups.world
    ranks = dist.get_world_size()
    size = SMALLEST_BYTES
    while size <= LARGEST_BYTES[device.type]:
        share = -(-size // (ITEMSIZE * ranks))
        part = torch.zeros(share, device=device)
        whole = torch.zeros(share * ranks, device=device)
        calls: dict[str, Callable[[], object]] = {
            "all_gather": partial(dist.all_gather_single, whole, part),
            "reduce_scatter": partial(dist.reduce_scatter_single, part, whole),
            "all_reduce": partial(dist.all_reduce, whole),
        }
        for name, call in calls.items():
            yield CollectivePoint(
                collective=name,
                n_gpus=ranks,
                gpus_per_node=int(world.ranks_per_node),
                n_nodes=int(world.nodes),
                message_bytes=share * ranks * ITEMSIZE,
                in_place=name == "all_reduce",
                seconds=_timed(call, device, MANY if size <= SMALL_BYTES else FEW),
            )
        size *= STEP


def _products(plan: Plan, device: torch.device) -> Iterator[ProductPoint]:
    """Time each product of the linear layers once: forward, and both of backward."""
    name = plan.training.compute_dtype
    seen: set[Product] = set()
    for m, k, n in _linear_shapes(plan):
        x, weight, gradient = (
            torch.randn(shape, dtype=DTYPES[name], device=device)
            for shape in ((m, k), (n, k), (m, n))
        )
        runs: dict[Product, Callable[[], object]] = {
            (m, k, n): partial(torch.matmul, x, weight.t()),
            (m, n, k): partial(torch.matmul, gradient, weight),
            (n, m, k): partial(torch.matmul, gradient.t(), x),
        }
        for (rows, inner, columns), run in runs.items():
            if (rows, inner, columns) not in seen:
                seen.add((rows, inner, columns))
                yield ProductPoint(
                    rows=rows,
                    inner=inner,
                    columns=columns,
                    dtype=name,
                    seconds=_timed(run, device, FEW),
                )


def _linear_shapes(plan: Plan) -> dict[Product, None]:
    return {
        (int(each.m), int(each.k), int(each.n)): None
        for unit in dict.fromkeys(plan.units)
        for operation in unit.operations
        if operation.kernel == "matmul"
        for each in operation.matmuls
        if each.count == 1
    }


def _copies(device: torch.device) -> Iterator[CopyPoint]:
    for size in COPIES_BYTES[device.type]:
        source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
        run = partial(target.copy_, source)
        yield CopyPoint(bytes=size, seconds=_timed(run, device, FEW))


def _timed(run: Callable[[], object], device: torch.device, calls: int) -> Spread:
    """Return the time of one call, the mean of several that follow one another. [s]"""

    def once() -> float:
        if device.type != "cuda":
            begin = perf_counter()
            for _ in range(calls):
                run()
            return (perf_counter() - begin) / calls
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / calls  # it tells milliseconds

    once()
    return spread(once() for _ in range(REPEATS))
