"""Feed-forward layers on the tape."""

from zeroplan.spec.architecture import Mlp
from zeroplan.workload.primitives import activation, dropout, linear, multiply, swiglu
from zeroplan.workload.tape import Operation, Tape, Tensor

__all__ = ["mlp"]


def mlp(tape: Tape, x: Tensor, part: Mlp) -> Tensor:
    """Write one feed-forward layer down: down(act(gate(x)) * up(x)), or down(act(up(x)))."""
    inner = _gated(tape, x, part) if part.gated else _plain(tape, x, part)
    if part.inner_dropout:
        inner = dropout(tape, inner, "inner dropout")
    y = linear(
        tape,
        inner,
        part.hidden,
        name="down_proj",
        role=part.role,
        bias=part.bias if part.output_bias is None else part.output_bias,
        transposed=part.transposed,
    )
    tape.hold(x)
    return dropout(tape, y, "mlp dropout") if part.dropout else y


def _plain(tape: Tape, x: Tensor, part: Mlp) -> Tensor:
    up = linear(
        tape,
        x,
        part.width,
        name="up_proj",
        role=part.role,
        bias=part.bias,
        transposed=part.transposed,
    )
    return activation(tape, up, part.activation)


def _gated(tape: Tape, x: Tensor, part: Mlp) -> Tensor:
    if part.fused_gate_up:
        both = linear(tape, x, 2 * part.width, name="gate_up_proj", role=part.role, bias=part.bias)
        gate, up = (tape.view(name, both, part.width) for name in ("gate", "up"))
        tape.add(Operation(name="split", kernel="none", inputs=(both,), outputs=(gate, up)))
        return swiglu(tape, gate, up, part.activation)
    gate = linear(tape, x, part.width, name="gate_proj", role=part.role, bias=part.bias)
    if tape.batch.compile:
        up = linear(tape, x, part.width, name="up_proj", role=part.role, bias=part.bias)
        return swiglu(tape, gate, up, part.activation)
    gate = activation(tape, gate, part.activation)
    up = linear(tape, x, part.width, name="up_proj", role=part.role, bias=part.bias)
    return multiply(tape, gate, up, "gated")
