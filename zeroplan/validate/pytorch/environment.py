"""A process group and tensors that hold no data."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

__all__ = ["DTYPES", "fake_group", "fake_tensors", "stored_as"]

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@contextmanager
def fake_group(ranks: int, rank: int = 0) -> Iterator[None]:
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
def stored_as(dtype: torch.dtype) -> Iterator[None]:
    """Give new parameters a dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
