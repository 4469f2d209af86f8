"""Collectives of one real rank among pretended ones: one copy each.

torch's fake process group copies an all-gather's input once for every rank
(FakeProcessGroup.hpp, `_allgather_base`, 2.13): 512 kernels at 512 ranks where NCCL runs one. What
FSDP2 is given here allocates the same and writes the same bytes at once.
"""

from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

__all__ = ["NAMESPACE", "with_single_copies"]

NAMESPACE: Final = "zeroplan"
_OPERATORS: Final = torch.library.Library(NAMESPACE, "DEF")
_OPERATORS.define("all_gather(Tensor(a!) output, Tensor input) -> ()")
_OPERATORS.define("reduce_scatter(Tensor(a!) output, Tensor input, int rank) -> ()")


def with_single_copies(module: nn.Module) -> None:
    """Let every unit of FSDP2 gather and reduce by one copy."""
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.set_custom_all_gather(_AllGather())
            unit.set_custom_reduce_scatter(_ReduceScatter())


class _Allocates:
    """Allocates as FSDP2 does by default (`DefaultAllocMixin`)."""

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return a buffer."""
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Allocates):
    """`AllGather` of torch/distributed/fsdp/_fully_shard/_fsdp_api.py."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,  # noqa: ARG002  # the signature is torch's
        async_op: bool = False,  # noqa: ARG002, FBT001, FBT002  # likewise
    ) -> None:
        """Fill the output; its own part is there already."""
        torch.ops.zeroplan.all_gather(output_tensor, input_tensor)


class _ReduceScatter(_Allocates):
    """`ReduceScatter` of the same file."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: object,  # noqa: ARG002  # the signature is torch's
        async_op: bool = False,  # noqa: ARG002, FBT001, FBT002  # likewise
    ) -> None:
        """Take this rank's part; the others' gradients are pretended to be as large as none."""
        torch.ops.zeroplan.reduce_scatter(output_tensor, input_tensor, group.rank())


def _gather(output: torch.Tensor, mine: torch.Tensor) -> None:
    """Copy the first rank's part, which a rank gives in place, to the places of the others."""
    rows = output.view(-1, mine.numel())
    rows[1:].copy_(mine.expand(len(rows) - 1, -1))


def _scatter(output: torch.Tensor, whole: torch.Tensor, rank: int) -> None:
    output.copy_(whole.view(-1, output.numel())[rank])


for _name, _run in (("all_gather", _gather), ("reduce_scatter", _scatter)):
    _OPERATORS.impl(_name, _run, "CompositeExplicitAutograd")
