"""Stand-ins for CUDA kernels: they allocate and save what the kernel does, and compute nothing.

On the CPU, RMSNorm falls apart into elementary operations, LayerNorm keeps its statistics in the
dtype of its input and dropout its mask as numbers; a planner for GPUs must see none of that.
"""

from typing import Any

import torch

__all__ = ["Dropout", "FusedNorm", "PackedProduct"]


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
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return gradients of the input's and the weights' shape."""
        x, *rest = ctx.saved_tensors
        (gradient,) = gradients
        return (
            torch.empty_like(x, dtype=gradient.dtype),
            None,
            *(
                torch.empty_like(weight) if wanted else None
                for weight, wanted in zip(rest, ctx.needs_input_grad[2:], strict=False)
            ),
        )


class Dropout(torch.autograd.Function):
    """Dropout as on CUDA: a mask of one byte per element is saved (`native_dropout`)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return an output."""
        ctx.save_for_backward(torch.empty_like(x, dtype=torch.bool))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:  # noqa: ARG004  # the signature is autograd's
        """Return a gradient."""
        (gradient,) = gradients
        return torch.empty_like(gradient)


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
