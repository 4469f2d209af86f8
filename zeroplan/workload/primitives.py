"""What autograd does for each elementary operation: what it saves, allocates and costs.

Source of every `saved`: tools/autograd/derivatives.yaml of PyTorch 2.13.
"""

from math import prod

from zeroplan.spec.architecture import Norm, Role
from zeroplan.units import FP32, Size
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = [
    "activation",
    "add",
    "cast",
    "dropout",
    "elementwise",
    "linear",
    "multiply",
    "norm",
    "scale",
    "swiglu",
    "weight_copy",
]

SAVED_BY_RESULT = ("relu", "sigmoid", "tanh")
"""Non-linearities whose derivative is a function of their result."""


def linear(
    tape: Tape,
    x: Tensor,
    width: int,
    *,
    name: str,
    role: Role,
    bias: bool = False,
    transposed: bool = False,
    tied_to: str | None = None,
    kernel: tuple[int, ...] = (),
) -> Tensor:
    """Multiply by a weight [width, x.width]; autograd keeps the input, not the output.

    With a kernel it is the convolution that equals a product of unfolded patches. Under autocast
    autograd also keeps the low-precision copies of input and weight.
    """
    x = cast(tape, x, tape.itemsize, f"{name} input")
    full = f"{tape.prefix}{name}"
    shape = (x.width, width) if transposed else (width, x.width // prod(kernel), *kernel)
    weight = Parameter(name=f"{full}.weight", shape=shape, role=role, tied_to=tied_to, matmul=True)
    biases = (Parameter(name=f"{full}.bias", shape=(width,), role=role),) if bias else ()
    copies = (weight_copy(tape, weight),) if tape.batch.autocast else ()
    out = tape.tensor(name, x.rows, width)
    tape.add(
        Operation(
            name=name,
            kernel="matmul",
            inputs=(x, *copies),
            outputs=(out,),
            parameters=biases if copies else (weight, *biases),
            saved=(x, *copies),
            matmuls=(Matmul(m=x.rows, n=width, k=x.width),),
            module=full,
            exchanges=True,
        )
    )
    return out


def weight_copy(tape: Tape, weight: Parameter) -> Tensor:
    """Cast a weight for autocast, whose cache and autograd both hold the copy.

    Its gradient comes in the compute dtype, and this operation's backward casts it.
    """
    copy = Tensor(
        f"{weight.name} copy",
        weight.elements,
        1,
        tape.itemsize,
        purpose="unsharded_parameters",
    )
    tape.add(Operation(name=copy.name, kernel="memory", outputs=(copy,), parameters=(weight,)))
    return copy


def elementwise(
    tape: Tape,
    name: str,
    inputs: tuple[Tensor, ...],
    saved: tuple[Tensor, ...] = (),
    *,
    exchanges: bool = False,
) -> Tensor:
    """Write one new storage shaped like the first input."""
    out = tape.like(name, inputs[0])
    tape.add(
        Operation(
            name=name,
            kernel="memory",
            inputs=inputs,
            outputs=(out,),
            saved=saved,
            exchanges=exchanges,
        )
    )
    return out


def add(tape: Tape, a: Tensor, b: Tensor, name: str = "residual") -> Tensor:
    """Add two tensors: nothing is saved, and the gradient goes on to both as it is."""
    out = tape.like(name, a if a.itemsize >= b.itemsize else b)
    tape.add(
        Operation(name=name, kernel="memory", inputs=(a, b), outputs=(out,), passes_gradient=True)
    )
    return out


def multiply(tape: Tape, a: Tensor, b: Tensor, name: str) -> Tensor:
    """Multiply two tensors that both need gradients: both are saved."""
    return elementwise(tape, name, (a, b), saved=(a, b), exchanges=True)


def scale(tape: Tape, x: Tensor, name: str) -> Tensor:
    """Multiply by a constant (a number, or a table without gradient): nothing of x is saved."""
    return elementwise(tape, name, (x,))


def activation(tape: Tape, x: Tensor, kind: str) -> Tensor:
    """Apply a pointwise non-linearity: its input is saved, or its result where that is enough."""
    if kind == "gelu_new" and tape.batch.eager:
        return _python_gelu(tape, x)
    if kind not in SAVED_BY_RESULT:
        return elementwise(tape, kind, (x,), saved=(x,))
    out = tape.like(kind, x)
    tape.add(Operation(name=kind, kernel="memory", inputs=(x,), outputs=(out,), saved=(out,)))
    return out


def _python_gelu(tape: Tape, x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), a kernel each: four tensors are saved.

    Source: NewGELUActivation in transformers/activations.py (5.24).
    """
    half = scale(tape, x, "half")
    cube = elementwise(tape, "cube", (x,), saved=(x,))
    inner = scale(tape, add(tape, x, scale(tape, cube, "scaled cube"), "sum"), "scaled sum")
    tanh = tape.like("tanh", inner)
    tape.add(
        Operation(name="tanh", kernel="memory", inputs=(inner,), outputs=(tanh,), saved=(tanh,))
    )
    return multiply(tape, half, scale(tape, tanh, "one plus tanh"), "gelu_new")


def swiglu(tape: Tape, gate: Tensor, up: Tensor, kind: str) -> Tensor:
    """Multiply act(gate) by up: compiled code keeps both and computes act(gate) again."""
    if tape.batch.compile:
        return elementwise(tape, "gated", (gate, up), saved=(gate, up))
    return multiply(tape, activation(tape, gate, kind), up, "gated")


def cast(tape: Tape, x: Tensor, itemsize: int, name: str = "cast") -> Tensor:
    """Change the dtype; a cast to the same dtype is the tensor itself."""
    if x.itemsize == itemsize:
        return x
    out = tape.tensor(name, x.rows, x.width, itemsize=itemsize)
    tape.add(Operation(name=name, kernel="memory", inputs=(x,), outputs=(out,)))
    return out


def dropout(tape: Tape, x: Tensor, name: str = "dropout") -> Tensor:
    """Drop elements: autograd keeps a mask of one byte each (native_dropout on CUDA)."""
    mask = tape.tensor(f"{name} mask", x.rows, x.width, itemsize=1, differentiable=False)
    out = tape.like(name, x)
    tape.add(Operation(name=name, kernel="memory", inputs=(x,), outputs=(out, mask), saved=(mask,)))
    return out


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
        scaled = _eager_rms_scaled(tape, x, rows, name)
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


def _eager_rms_scaled(tape: Tape, x: Tensor, rows: Size, name: str) -> Tensor:
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
    _kernel(tape, (wide, rstd), scaled, saved=(wide, rstd), backward=(wide.bytes,))
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
    weighed = tape.like(f"{name} weighed" if kind.weighs_wide else name, factor)
    tape.add(
        Operation(
            name=weighed.name,
            kernel="memory",
            inputs=(factor,),
            outputs=(weighed,),
            parameters=weights,
            saved=(factor,),
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
