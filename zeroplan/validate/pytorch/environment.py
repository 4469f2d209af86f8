"""A process group and tensors that hold no data."""

import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from zeroplan.schedule.plan import Plan

__all__ = ["DTYPES", "fake_group", "fake_tensors", "materialise", "on_meta", "token_ids"]

DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@contextmanager
def fake_group(ranks: int, rank: int) -> Iterator[None]:
    """Be one rank of a process group whose collectives return at once."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Make every tensor fake, and let only reference counts free them, so that a run repeats."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            yield mode
    finally:
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
    """Give memory to a module on the meta device; `to_empty` alone would untie tied weights."""
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = defaultdict(list)
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            places[parameter].append((part, name))
    module.to_empty(device="cpu")
    for (first, name), *others in places.values():
        for part, other in others:
            setattr(part, other, getattr(first, name))


def token_ids(plan: Plan) -> torch.Tensor:
    """Return the token ids, or labels, of one micro-step."""
    batch = plan.workload.batch
    shape = (int(batch.sequences), int(batch.sequence_length))
    return torch.zeros(shape, dtype=torch.int64)
