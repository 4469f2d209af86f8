"""What stand-ins for kernels compute where tensors have data."""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["fill", "normalised", "normalised_gradients"]

EPSILON: Final = 1e-5


def fill(tensors: Sequence[torch.Tensor], computed: Callable[[], Sequence[torch.Tensor]]) -> None:
    """Put values into tensors, unless they are fake; no mode sees what that takes."""
    if isinstance(tensors[0], FakeTensor):
        return
    with _disable_current_modes(), torch.no_grad():
        for tensor, value in zip(tensors, computed(), strict=False):
            tensor.copy_(value)


def normalised(x: torch.Tensor, statistics: int, *affine: torch.Tensor) -> torch.Tensor:
    """Return RMSNorm (one statistic a row) or LayerNorm (two)."""
    shape = x.shape[-1:]
    if statistics == 1:
        return functional.rms_norm(x, shape, *affine)
    return functional.layer_norm(x, shape, *affine)


def normalised_gradients(
    gradient: torch.Tensor, x: torch.Tensor, affine: Sequence[torch.Tensor], statistics: int
) -> list[torch.Tensor]:
    """Return gradients of the input, the weight and the bias.

    A backward of autograd's own inside this one would run other nodes of the step on the way.
    """
    wide, incoming = x.float(), gradient.float()
    if statistics > 1:
        wide = wide - wide.mean(-1, keepdim=True)
    scale = wide.square().mean(-1, keepdim=True).add(EPSILON).rsqrt()
    normal = wide * scale
    through = incoming * affine[0] if affine else incoming
    of_input = through - normal * (through * normal).mean(-1, keepdim=True)
    if statistics > 1:
        of_input = of_input - through.mean(-1, keepdim=True)
    rows = tuple(range(x.dim() - 1))
    return [of_input * scale, (incoming * normal).sum(rows), incoming.sum(rows)]
