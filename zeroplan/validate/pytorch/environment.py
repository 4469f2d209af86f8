"""Where a step runs: process groups, and the tensors of its model and batches."""

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from zeroplan.errors import RunError
from zeroplan.schedule.plan import Plan

__all__ = [
    "DTYPES",
    "MET",
    "by_reference_counts",
    "fake_group",
    "fake_tensors",
    "materialise",
    "on_meta",
    "real_group",
    "token_ids",
]

DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

MET: Final = "env://"
"""The place that the variables MASTER_ADDR and MASTER_PORT name."""
SPREAD: Final = 0.02
"""Standard deviation of weights before training, as GPT-2's and Llama's configurations have it."""


@contextmanager
def fake_group(ranks: int, rank: int) -> Iterator[None]:
    """Be one rank of a process group whose collectives return at once."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def real_group(
    ranks: int, rank: int, place: str, limit_seconds: float, *, on_gpus: bool
) -> Iterator[None]:
    """Be one rank of a process group that meets at a place: a file's URI, or where a launcher says.

    After an error it is left as it is: to close it would be to wait for ranks that do not come.

    Raises
    ------
    RunError
        The ranks did not meet.
    """
    try:
        dist.init_process_group(
            "nccl" if on_gpus else "gloo",
            init_method=place,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=limit_seconds),
        )
    except (dist.DistError, ValueError) as error:  # a port in use, a host that is not there
        told = str(error).partition("\n")[0]
        where = "{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ) if place == MET else place
        raise RunError(f"rank {rank} of {ranks} found no one at {where}: {told}") from None
    yield
    dist.destroy_process_group()


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Make every tensor fake."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


@contextmanager
def by_reference_counts() -> Iterator[None]:
    """Let only reference counts free tensors, so that a run repeats.

    What is there already, PyTorch's own modules above all, is left out where a step looks for
    cycles of references: to go through it takes longer than a small step.
    """
    collecting = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()


@contextmanager
def on_meta(dtype: torch.dtype) -> Iterator[None]:
    """Give new parameters a dtype and no memory."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)


def materialise(module: nn.Module) -> None:
    """Give a module on the meta device memory of the default device; `to_empty` unties tied weights.

    It is filled with small numbers: not-a-numbers and denormal ones would slow a real step down.
    """
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = defaultdict(list)
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            places[parameter].append((part, name))
    module.to_empty(device=torch.get_default_device())
    for (first, name), *others in places.values():
        for part, other in others:
            setattr(part, other, getattr(first, name))
    for tensor in (*module.parameters(), *module.buffers()):
        local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        if local.is_floating_point():
            local.data.normal_(std=SPREAD)


def token_ids(plan: Plan) -> torch.Tensor:
    """Return the token ids, or labels, of one micro-step."""
    batch = plan.workload.batch
    shape = (int(batch.sequences), int(batch.sequence_length))
    return torch.zeros(shape, dtype=torch.int64)
