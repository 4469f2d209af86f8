"""Normalisations on the tape: one kernel, or RMSNorm an operation at a time.

Source of every `saved`: tools/autograd/derivatives.yaml of PyTorch 2.13.
"""

from zeroplan.spec.architecture import Norm
from zeroplan.units import FP32, Size
from zeroplan.workload.primitives import cast
from zeroplan.workload.tape import Operation, Parameter, Tape, Tensor

__all__ = ["norm"]


def norm(tape: Tape, x: Tensor, kind: Norm, *, name: str) -> Tensor:
    """Normalise, by one fused kernel or (RMSNorm only) in fp32 Python.

    The fused kernel saves its input and fp32 statistics: one value a row for RMSNorm, two for
    LayerNorm. The eager form saves an fp32 copy, the fp32 statistic and the normalised tensor.
    """
    full = f"{tape.prefix}{name}"
    shape = (kind.heads, kind.width) if kind.heads > 1 else (kind.width,)
    weights = [
        Parameter(name=f"{full}.{which}", shape=shape, role="norm")
        for which, present in (("weight", kind.weight), ("bias", kind.bias))
        if present
    ]
    rows = x.rows * (x.width // kind.width) if kind.heads == 1 else x.rows * kind.heads
    if tape.batch.eager and kind.kind == "rms":
        scaled = _eager_rms_scaled(tape, x, rows, kind, name)
        return _eager_weighed(tape, x, scaled, kind, weights=tuple(weights), name=name)
    statistics = tuple(
        tape.tensor(f"{name} {each}", rows, 1, itemsize=FP32, differentiable=False)
        for each in (("rstd",) if kind.kind == "rms" else ("mean", "rstd"))
    )
    out = tape.like(name, x)
    tape.add(
        Operation(
            name=name,
            kernel="memory",
            inputs=(x,),
            outputs=(out, *statistics),
            parameters=tuple(weights),
            saved=(x, *statistics),
            module=full,
        )
    )
    return out


def _eager_rms_scaled(tape: Tape, x: Tensor, rows: Size, kind: Norm, name: str) -> Tensor:
    """Square, mean, rsqrt and a product, each a kernel; the result is fp32.

    In backward the power rule makes x^1 and 2 x^1 first, and the gradient of the statistic is a sum
    over a product as large as x.
    """
    wide = cast(tape, x, FP32, f"{name} fp32")
    squared = tape.like(f"{name} square", wide)
    rstd = tape.tensor(f"{name} rstd", rows, 1, itemsize=FP32)
    scaled = tape.like(f"{name} scaled", wide)
    _kernel(tape, (wide,), squared, saved=(wide,), backward=(wide.bytes, wide.bytes))
    _kernel(tape, (squared,), rstd, saved=(rstd,))
    factor = x if kind.scales_input else wide
    _kernel(tape, (factor, rstd), scaled, saved=(factor, rstd), backward=(wide.bytes,))
    return scaled


def _eager_weighed(
    tape: Tape,
    x: Tensor,
    scaled: Tensor,
    kind: Norm,
    *,
    weights: tuple[Parameter, ...],
    name: str,
) -> Tensor:
    """Multiply by the weight, after the cast back or before it.

    The product keeps what it multiplies; the weight's gradient is a sum over another product.
    """
    factor = scaled
    if not kind.weighs_wide:
        factor = cast(tape, scaled, x.itemsize, f"{name} narrow")
    wide_weight: tuple[Tensor, ...] = ()
    if kind.unit_offset:
        wide_weight = (tape.tensor(f"{name} weight", 1, kind.width, itemsize=FP32),)
    weighed = tape.like(f"{name} weighed" if kind.weighs_wide else name, factor)
    tape.add(
        Operation(
            name=weighed.name,
            kernel="memory",
            inputs=(factor,),
            outputs=(weighed, *wide_weight),
            parameters=weights,
            saved=(factor, *wide_weight),
            backward_temporaries=(factor.bytes,),
            module=f"{tape.prefix}{name}",
            exchanges=True,
        )
    )
    tape.hold(x, scaled)
    return cast(tape, weighed, x.itemsize, name) if kind.weighs_wide else weighed


def _kernel(
    tape: Tape,
    inputs: tuple[Tensor, ...],
    out: Tensor,
    *,
    saved: tuple[Tensor, ...],
    backward: tuple[Size, ...] = (),
) -> None:
    tape.add(
        Operation(
            name=out.name,
            kernel="memory",
            inputs=inputs,
            outputs=(out,),
            saved=saved,
            backward_temporaries=backward,
        )
    )
