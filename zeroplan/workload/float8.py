"""Linear layers whose products run in fp8: torchao's float8 training.

Weights, inputs and gradients are cast right before each product, which makes bf16 of fp8; autograd
keeps what it keeps of an ordinary layer. Compiled, a cast is one kernel, and nothing but its
result outlives it. Source: `matmul_with_hp_or_float8_args` in torchao/float8/float8_linear.py
(0.18.0).
"""

from typing import Final

from zeroplan.records import replace
from zeroplan.units import FP32, maximum
from zeroplan.workload.tape import Operation, Parameter

__all__ = ["in_float8"]

MULTIPLE: Final = 16
"""Both sides of a weight must divide by this (torchao/float8/float8_linear_utils.py)."""


def in_float8(operation: Operation, scaling: str) -> Operation:
    """Run a linear layer's products in fp8, if they can: routers and grouped experts cannot.

    Parameters
    ----------
    scaling
        tensorwise: a scale per tensor; rowwise: one per row and column.
    """
    weights = [p for p in operation.parameters if _fits(p)]
    if operation.kernel != "matmul" or not weights:
        return operation
    (product,) = operation.matmuls
    given, made = product.m * product.k, product.m * product.n
    weight = product.k * product.n
    scales = FP32 * (product.m + product.n) if scaling == "rowwise" else 0
    return replace(
        operation,
        float8=True,
        parameters=tuple(replace(p, float8=p in weights) for p in operation.parameters),
        forward_temporaries=(given, weight, scales),
        backward_temporaries=(made, maximum(weight, given), scales),
    )


def _fits(parameter: Parameter) -> bool:
    linear = parameter.matmul and len(parameter.shape) == 2  # noqa: PLR2004
    divides = all(extent % MULTIPLE == 0 for extent in parameter.shape)
    return linear and divides and parameter.role != "router"
