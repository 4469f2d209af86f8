"""What autograd does for each elementary operation: what it saves, allocates and costs.

Source of every `saved`: tools/autograd/derivatives.yaml of PyTorch 2.13.
"""

from math import prod

from zeroplan.spec.architecture import Role
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = [
    "activation",
    "add",
    "cast",
    "dropout",
    "elementwise",
    "gated",
    "linear",
    "multiply",
    "scale",
    "swiglu",
    "weigh",
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


def weigh(tape: Tape, x: Tensor, weight: Tensor, name: str) -> Tensor:
    """Multiply each row by a number, which widens the product if it is wider.

    The gradient of the number is a sum over a product as large as the result; a wide gradient of x
    is narrowed afterwards.
    """
    out = tape.tensor(name, x.rows, x.width, itemsize=max(weight.itemsize, x.itemsize))
    tape.add(
        Operation(
            name=name,
            kernel="memory",
            inputs=(x, weight),
            outputs=(out,),
            saved=(x, weight),
            backward_temporaries=(2 * out.bytes - x.bytes,),
            exchanges=True,
        )
    )
    return out


def gated(tape: Tape, x: Tensor, name: str) -> Tensor:
    """Multiply by the tanh of a trained number, whose gradient is a sum over a whole product."""
    number = tape.tensor(f"tanh of {name}", 1, 1, itemsize=x.itemsize)
    out = tape.like("gated branch", x)
    tape.add(
        Operation(
            name=out.name,
            kernel="memory",
            inputs=(x,),
            outputs=(out, number),
            parameters=(Parameter(name=name, shape=(1,), role="other"),),
            saved=(x, number),
            backward_temporaries=(x.bytes,),
        )
    )
    return out


def scale(tape: Tape, x: Tensor, name: str) -> Tensor:
    """Multiply by a constant (a number, or a table without gradient): nothing of x is saved."""
    return elementwise(tape, name, (x,))


def activation(tape: Tape, x: Tensor, kind: str) -> Tensor:
    """Apply a pointwise non-linearity: its input is saved, or its result where that is enough."""
    if kind == "gelu_new" and tape.batch.eager:
        return _python_gelu(tape, x)
    if kind == "quick_gelu" and tape.batch.eager:
        scaled = scale(tape, x, "scaled input")
        return multiply(tape, x, activation(tape, scaled, "sigmoid"), "quick_gelu")
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
