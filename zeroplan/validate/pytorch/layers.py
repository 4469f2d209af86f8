"""Modules for the records of an architecture, written as their published code is."""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from zeroplan.errors import MissingPartError
from zeroplan.spec import architecture
from zeroplan.validate.pytorch.kernels import KEPT, Dropout, FusedNorm
from zeroplan.validate.pytorch.values import normalised

__all__ = ["Linear", "Mlp", "Norm", "activation", "dropped"]

ACTIVATIONS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: functional.gelu(x, approximate="tanh"),
}
"""By the word that model files use; each is one kernel."""


def activation(name: str, *, eager: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a pointwise non-linearity: one kernel, or Python where the model's class has that."""
    if name == "gelu_new" and eager:
        return _python_gelu
    if name not in ACTIVATIONS:
        raise MissingPartError(f"zeroplan's own module has no activation {name!r}")
    return ACTIVATIONS[name]


class Norm(nn.Module):
    """RMSNorm or LayerNorm: one kernel, or RMSNorm in fp32 Python as in transformers."""

    def __init__(self, kind: architecture.Norm, *, eager: bool) -> None:
        super().__init__()
        shape = (kind.heads, kind.width) if kind.heads > 1 else (kind.width,)
        self.statistics = 1 if kind.kind == "rms" else 2
        self.eager = eager and kind.kind == "rms"
        self.weighs_wide, self.unit_offset = kind.weighs_wide, kind.unit_offset
        self.weight = nn.Parameter(torch.empty(shape)) if kind.weight else None
        self.bias = nn.Parameter(torch.empty(shape)) if kind.bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last axis."""
        if not self.eager:
            affine = (each for each in (self.weight, self.bias) if each is not None)
            run = normalised if x.is_cuda else FusedNorm.apply
            return run(x, self.statistics, *affine)
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        if self.weight is None:
            return x.to(dtype)
        weight = 1.0 + self.weight.float() if self.unit_offset else self.weight
        return (weight * x).to(dtype) if self.weighs_wide else weight * x.to(dtype)


class Linear(nn.Module):
    """A linear layer; transposed, its weight is stored [in, out] like GPT-2's `Conv1D`."""

    def __init__(
        self, width: int, into: int, *, bias: bool = False, transposed: bool = False
    ) -> None:
        super().__init__()
        self.transposed = transposed
        self.weight = nn.Parameter(torch.empty((width, into) if transposed else (into, width)))
        self.bias = nn.Parameter(torch.empty(into)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        if not self.transposed:
            return functional.linear(x, self.weight, self.bias)
        rows = x.view(-1, x.shape[-1])
        y = rows @ self.weight if self.bias is None else torch.addmm(self.bias, rows, self.weight)
        return y.view(*x.shape[:-1], -1)


class Mlp(nn.Module):
    """A feed-forward layer, gated or plain."""

    def __init__(self, part: architecture.Mlp, *, eager: bool) -> None:
        super().__init__()
        width, inner = part.hidden, part.width
        out_bias = part.bias if part.output_bias is None else part.output_bias
        self.fused, self.gated = part.fused_gate_up, part.gated
        if part.gated and part.fused_gate_up:
            self.gate_up_proj = Linear(width, 2 * inner, bias=part.bias)
        elif part.gated:
            self.gate_proj = Linear(width, inner, bias=part.bias)
            self.up_proj = Linear(width, inner, bias=part.bias)
        else:
            self.up_proj = Linear(width, inner, bias=part.bias, transposed=part.transposed)
        self.down_proj = Linear(inner, width, bias=out_bias, transposed=part.transposed)
        self.act = activation(part.activation, eager=eager)
        self.drops = part.dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, bend, narrow."""
        y = self.down_proj(self._inner(x))
        return dropped(y) if self.drops else y

    def _inner(self, x: torch.Tensor) -> torch.Tensor:
        if not self.gated:
            return self.act(self.up_proj(x))
        if self.fused:
            gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
            return up * self.act(gate)
        return self.act(self.gate_proj(x)) * self.up_proj(x)


def dropped(x: torch.Tensor) -> torch.Tensor:
    """Drop some elements; a GPU has the kernel itself."""
    return functional.dropout(x, 1 - KEPT) if x.is_cuda else Dropout.apply(x)


def _python_gelu(x: torch.Tensor) -> torch.Tensor:
    """GPT-2's approximation, an operation at a time."""
    width = math.sqrt(2 / math.pi)
    return 0.5 * x * (1.0 + torch.tanh(width * (x + 0.044715 * torch.pow(x, 3.0))))
