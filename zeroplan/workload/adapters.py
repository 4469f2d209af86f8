"""What stands beside or in the place of a frozen layer: an adapter, packed weights."""

from typing import Final, NamedTuple

from zeroplan.records import replace
from zeroplan.units import FP32, Size, ceil_div, round_up
from zeroplan.workload.batch import Batch
from zeroplan.workload.primitives import add, cast, dropout, linear, scale
from zeroplan.workload.tape import Operation, Parameter, Tape, Tensor
from zeroplan.workload.tuning import Tuning

__all__ = ["Beside", "beside", "constant_sizes", "packed"]

BLOCK: Final = 64
"""Weights that share a scale: `blocksize` of `quantize_4bit`, bitsandbytes 0.50. [elements]"""
SCALES_BLOCK: Final = 256
"""Scales that share one of theirs, where they are quantised too."""
CODES: Final = 16
DYNAMIC_CODES: Final = 256
"""Levels of nf4, and of the 8-bit map of the scales: fp32 tables that each layer has."""
DTYPES: Final = {4: "fp32", 2: "bf16"}


class Beside(NamedTuple):
    """What an adapter runs, and what it makes of the base layer's output."""

    operations: list[Operation]
    result: Tensor


def beside(batch: Batch, tuning: Tuning, weight: Parameter, x: Tensor, base: Tensor) -> Beside:
    """Add scaled B(A(dropout(x))) to a base layer's output.

    x is cast to the adapter's dtype before anything else, except beside quantised weights under
    autocast, and that cast is a local variable of the whole forward, whose caller holds x. Beside 4-bit weights the
    base's output is cloned.

    Source: `Linear.forward` in peft/tuners/lora/layer.py, `Linear4bit.forward` in bnb.py beside it
    (peft 0.21).
    """
    name = weight.name.removesuffix(".weight")
    computes = batch.itemsize if tuning.autocast else tuning.adapter_itemsize
    tape = Tape(replace(batch, dtype=DTYPES[computes], autocast=tuning.autocast))
    four_bits = tuning.quantization == "nf4"
    quantized = tuning.quantization != "none"
    if four_bits:
        base = _cloned(tape, base)
    wide = x
    if not (quantized and tuning.autocast):
        wide = cast(tape, x, tuning.adapter_itemsize, f"{name} adapter input")
    y = dropout(tape, wide, f"{name} adapter dropout") if tuning.dropout else wide
    for layer, width in (("lora_A", tuning.rank), ("lora_B", base.width)):
        given, y = y, linear(tape, y, width, name=f"{name}.{layer}", role=weight.role)
        tape.hold(given)
    y = scale(tape, y, f"{name} adapter scaled")
    if quantized:
        y = cast(tape, y, base.itemsize, f"{name} adapter output")
    out = add(tape, y, base, f"{name} with adapter")
    out = cast(tape, out, base.itemsize, f"{name} with adapter narrow")
    tape.hold(x, wide)
    return Beside(tape.operations, out)


def _cloned(tape: Tape, x: Tensor) -> Tensor:
    out = tape.like(f"{x.name} clone", x)
    tape.add(
        Operation(name=out.name, kernel="memory", inputs=(x,), outputs=(out,), passes_gradient=True)
    )
    return out


def packed(operation: Operation, weight: Parameter, tuning: Tuning) -> Operation:
    """Return a matmul whose weight is quantised.

    4 bits: the whole weight is made in the compute dtype, forward and again in backward, and the
    input is not kept. 8 bits: the input is cast to fp16 and rounded to 8 bits, the product comes in
    32, backward makes the weight; the input is kept without need.

    Source: `MatMul4Bit` and `MatMul8bitLt` in bitsandbytes/autograd/_functions.py, `gemm_4bit` in
    backends/cuda/ops.py for more than 1536 rows, `int8_scaled_mm` in backends/default/ops.py
    (0.50).
    """
    (product,) = operation.matmuls
    x = operation.inputs[0]
    whole = weight.elements * x.itemsize
    scales = ceil_div(weight.elements, BLOCK) * FP32 if tuning.double else 0
    if tuning.quantization == "nf4":
        saved: tuple[Tensor, ...] = ()
        forward: tuple[Size, ...] = (scales, whole)
        again = forward
    else:
        saved = (x,)
        forward = (product.m * product.k * 2, product.m * product.k, product.m * product.n * FP32)
        again = (whole,)
    others = [p for p in operation.parameters if p is not weight]
    return replace(
        operation,
        inputs=(x,),
        parameters=(_packed(weight, tuning), *others),
        saved=saved,
        forward_temporaries=forward,
        backward_temporaries=again,
        exchanges=False,
    )


def _packed(weight: Parameter, tuning: Tuning) -> Parameter:
    """Return the parameter that holds a quantised weight: for 4 bits one long column of bytes."""
    if tuning.quantization == "int8":
        return replace(
            weight,
            packed_itemsize=1,
            unpacked_elements=weight.elements,
            constants_bytes=int(round_up(weight.shape[0] * FP32)),
        )
    sizes = constant_sizes(weight.elements, double=tuning.double)
    elements = int(ceil_div(ceil_div(weight.elements, 2), tuning.storage_itemsize))
    return replace(
        weight,
        shape=(elements, 1),
        packed_itemsize=tuning.storage_itemsize,
        unpacked_elements=weight.elements,
        constants_bytes=int(sum(round_up(size) for size in sizes)),
    )


def constant_sizes(elements: int, *, double: bool) -> list[int]:
    """List a 4-bit layer's scales and tables, each in a storage of its own. [B]

    Source: `quantize_4bit` in bitsandbytes/functional.py (0.50).
    """
    blocks = ceil_div(elements, BLOCK)
    sizes = [CODES * FP32]
    if double:
        groups = ceil_div(blocks, SCALES_BLOCK)
        sizes += [blocks, groups * FP32, DYNAMIC_CODES * FP32, FP32]  # the last is the mean
    else:
        sizes.append(blocks * FP32)
    return [int(size) for size in sizes]
