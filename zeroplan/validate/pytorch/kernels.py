"""Stand-ins for CUDA kernels: they allocate and save what the kernel does.

On the CPU, RMSNorm falls apart into elementary operations, LayerNorm keeps its statistics in the
dtype of its input and dropout its mask as numbers, and attention with dropout, a trained bias or
values of another width than the queries has its scores in memory; a planner for GPUs must see none
of that. Norms and dropout have values where tensors have data; attention and packed weights have
none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn import functional

from zeroplan.validate.pytorch.values import fill, normalised, normalised_gradients

__all__ = [
    "KEPT",
    "Dropout",
    "FusedAttention",
    "FusedNorm",
    "PackedProduct",
    "fused_attention",
    "one_byte_dropout",
    "replaced",
]


KEPT: Final = 0.9
"""Share of elements that dropout leaves; time and memory do not depend on it."""


class FusedNorm(torch.autograd.Function):
    """RMSNorm or LayerNorm as one kernel: input, weight and fp32 statistics are saved.

    Source: `_fused_rms_norm` and `native_layer_norm` in tools/autograd/derivatives.yaml and
    aten/src/ATen/native/cuda/layer_norm_kernel.cu (2.13).
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, statistics: int, *affine: torch.Tensor) -> torch.Tensor:
        """Return an output; `statistics` are one (rms) or two (mean, rms) fp32 numbers a row."""
        rows = x.shape[:-1]
        kept = [x.new_empty(rows, dtype=torch.float32) for _ in range(statistics)]
        ctx.save_for_backward(x, *affine, *kept)
        ctx.affine = len(affine)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        fill([out], lambda: [normalised(x, statistics, *affine)])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return gradients of the input's and the weights' shape."""
        x, *rest = ctx.saved_tensors
        affine, statistics = rest[: ctx.affine], len(rest) - ctx.affine
        (gradient,) = gradients
        of_input = torch.empty_like(x, dtype=gradient.dtype)
        of_affine = [
            torch.empty_like(weight) if wanted else None
            for weight, wanted in zip(affine, ctx.needs_input_grad[2:], strict=True)
        ]
        made = [of_input, *(each for each in of_affine if each is not None)]
        fill(made, lambda: normalised_gradients(gradient, x, affine, statistics))
        return (of_input, None, *of_affine)


class Dropout(torch.autograd.Function):
    """Dropout as on CUDA: a mask of one byte per element is saved (`native_dropout`)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return an output."""
        mask, out = torch.empty_like(x, dtype=torch.bool), torch.empty_like(x)
        ctx.save_for_backward(mask)
        fill([mask], lambda: [torch.rand(x.shape) < KEPT])
        fill([out], lambda: [x * mask / KEPT])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return a gradient."""
        (mask,), (gradient,) = ctx.saved_tensors, gradients
        of_input = torch.empty_like(gradient)
        fill([of_input], lambda: [gradient * mask / KEPT])
        return of_input


class FusedAttention(torch.autograd.Function):
    """Attention as one kernel: queries, keys, values, a bias, output and log-sums are saved.

    Source: `_scaled_dot_product_efficient_attention` in tools/autograd/derivatives.yaml and
    aten/src/ATen/native/transformers/cuda/attention.cu (2.13); the seed of its dropout is left out.
    """

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Return [sequences, heads, tokens, width] laid out by token."""
        b, heads, length, _ = q.shape
        out = q.new_empty(b, length, heads, v.shape[-1]).transpose(1, 2)
        sums = q.new_empty(b, heads, length, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, sums, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:  # noqa: ARG004  # the signature is autograd's
        """Return gradients; the bias's is as large as the scores before it is summed."""
        q, k, v, _, _, bias = ctx.saved_tensors
        of_bias = None
        if bias is not None and ctx.needs_input_grad[3]:
            scores = q.new_empty(*q.shape[:3], k.shape[2])
            of_bias = scores.sum_to_size(bias.shape)
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), of_bias


class PackedProduct(torch.autograd.Function):
    """A product with a 4-bit weight, which is made whole for it, forward and again in backward.

    Source: `MatMul4Bit` in bitsandbytes/autograd/_functions.py, `dequantize_4bit` in functional.py,
    `gemm_4bit` in backends/cuda/ops.py for many rows (0.50).
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, packed: torch.Tensor, extents: tuple[int, int], block: int
    ) -> torch.Tensor:
        """Return an output; nothing of x is kept, and what is kept no checkpoint sees."""
        ctx.packed, ctx.extents, ctx.block = packed, extents, block
        _scales, whole = _whole(x, extents, block)
        return torch.nn.functional.linear(x, whole)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return the gradient of x."""
        (gradient,) = gradients
        _scales, whole = _whole(gradient, ctx.extents, ctx.block)
        return torch.matmul(gradient, whole), None, None, None


def _whole(x: torch.Tensor, extents: tuple[int, int], block: int) -> tuple[torch.Tensor, ...]:
    """Return the scales that were quantised too, one for each block, and the weight they make."""
    into, width = extents
    scales = x.new_empty(-(-into * width // block) if block else 0, dtype=torch.float32)
    return scales, x.new_empty(into, width)


@contextmanager
def one_byte_dropout() -> Iterator[None]:
    """Let every dropout keep a mask as CUDA's does."""
    original = functional.dropout

    def dropout(
        x: torch.Tensor,
        p: float = 0.5,
        training: bool = True,  # noqa: FBT001, FBT002  # the signature is torch's
        inplace: bool = False,  # noqa: FBT001, FBT002  # likewise
    ) -> torch.Tensor:
        return Dropout.apply(x) if training and p else original(x, p, training, inplace)

    with replaced(functional, "dropout", dropout):
        yield


@contextmanager
def fused_attention() -> Iterator[None]:
    """Let attention be one kernel where CUDA has one and the CPU has none."""
    original = functional.scaled_dot_product_attention

    def attention(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        *rest: Any,
        **keys: Any,
    ) -> torch.Tensor:
        trained = attn_mask is not None and attn_mask.requires_grad
        if dropout_p or trained or q.shape[-1] != v.shape[-1]:
            return FusedAttention.apply(q, k, v, attn_mask)
        return original(q, k, v, attn_mask, dropout_p, *rest, **keys)

    with replaced(functional, "scaled_dot_product_attention", attention):
        yield


@contextmanager
def replaced(module: Any, name: str, by: Callable[..., Any]) -> Iterator[None]:
    """Let a module's function be another one."""
    original = getattr(module, name)
    setattr(module, name, by)
    try:
        yield
    finally:
        setattr(module, name, original)
