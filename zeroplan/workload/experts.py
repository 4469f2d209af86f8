"""What grouped experts and a loop over them share: stored weights, and what stands between two."""

from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.workload.primitives import activation, multiply
from zeroplan.workload.tape import Operation, Parameter, Tape, Tensor

__all__ = ["activated", "expert_weights"]


def activated(tape: Tape, inner: Tensor, part: MixtureOfExperts) -> Tensor:
    """Apply the non-linearity, and the gate where there is one."""
    if not part.gated:
        return activation(tape, inner, part.activation)
    gate, up = (tape.view(name, inner, part.width) for name in ("gate", "up"))
    tape.add(Operation(name="split", kernel="none", inputs=(inner,), outputs=(gate, up)))
    return multiply(tape, activation(tape, gate, part.activation), up, "gated")


def expert_weights(
    tape: Tape, part: MixtureOfExperts
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """Return the weights of the inward and of the outward projections."""
    match part.storage:
        case "stacked":
            name, columns = ("gate_up_proj", 2) if part.gated else ("up_proj", 1)
            first = _stack(tape, part, name, (columns * part.width, part.hidden))
            return first, _stack(tape, part, "down_proj", (part.hidden, part.width))
        case "flat":
            shape = (part.experts * part.width, part.hidden)
            names = ("w1", "v1") if part.gated else ("w1",)
            inward = tuple(_weight(tape, name, shape) for name in names)
            return inward, (_weight(tape, "w2", shape),)
        case "modules":
            return _modules(tape, part)


def _stack(
    tape: Tape, part: MixtureOfExperts, name: str, shape: tuple[int, int]
) -> tuple[Parameter, ...]:
    """One tensor for all experts, and its bias; `shape` is one expert's [out, in]."""
    inner = shape[::-1] if part.transposed else shape
    weight = _weight(tape, name, (part.experts, *inner))
    bias = _weight(tape, f"{name}_bias", (part.experts, shape[0]), matmul=False)
    return (weight, bias) if part.bias else (weight,)


def _modules(
    tape: Tape, part: MixtureOfExperts
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    inward = ("gate_proj", "up_proj") if part.gated else ("up_proj",)
    first = tuple(
        _weight(tape, f"{index}.{name}.weight", (part.width, part.hidden))
        for index in range(part.experts)
        for name in inward
    )
    last = tuple(
        _weight(tape, f"{index}.down_proj.weight", (part.hidden, part.width))
        for index in range(part.experts)
    )
    return first, last


def _weight(tape: Tape, name: str, shape: tuple[int, ...], *, matmul: bool = True) -> Parameter:
    return Parameter(name=f"{tape.prefix}experts.{name}", shape=shape, role="expert", matmul=matmul)
