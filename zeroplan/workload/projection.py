"""Projections on the tape: patch embeddings, convolution stems, projectors between towers."""

from math import prod

from zeroplan.spec.architecture import Projection
from zeroplan.units import Size
from zeroplan.workload.norms import norm
from zeroplan.workload.primitives import activation, linear
from zeroplan.workload.tape import Operation, Tape, Tensor

__all__ = ["chain", "projection"]


def chain(
    tape: Tape, x: Tensor | None, parts: tuple[Projection, ...], tokens: Size
) -> Tensor | None:
    """Write projections down one after the other; side branches leave the states as they are."""
    for part in parts:
        y = projection(tape, x, part, tokens)
        x = x if part.side else y
    return x


def projection(tape: Tape, x: Tensor | None, part: Projection, tokens: Size) -> Tensor:
    """Write one projection down; without x it reads pixels or audio frames."""
    prefix, tape.prefix = tape.prefix, f"{part.name}."
    rows = tokens * part.rate[0] // part.rate[1]
    y = _laid_out(tape, x, rows, part)
    if part.norm is not None:
        y = norm(tape, y, part.norm, name="norm")
    layers = len(part.widths) - 1
    for index, width in enumerate(part.widths[1:]):
        y = linear(
            tape,
            y,
            width,
            name=f"{index}" if layers > 1 else "proj",
            role=part.role,
            bias=part.bias,
            transposed=part.transposed,
            kernel=part.kernel,
        )
        if part.activation is not None and (layers == 1 or index < layers - 1):
            y = activation(tape, y, part.activation)
    if part.post_norm is not None:
        y = norm(tape, y, part.post_norm, name="post_norm")
    tape.prefix = prefix
    return y


def _laid_out(tape: Tape, x: Tensor | None, rows: Size, part: Projection) -> Tensor:
    """Return what the first layer (or the norm before it) reads.

    A norm narrower than the layer sees the tokens before they are laid side by side.
    """
    width = part.widths[0] * prod(part.kernel)
    if x is None:
        pixels = tape.tensor("pixels", rows, width, differentiable=False)
        tape.add(Operation(name="pixels", kernel="none", outputs=(pixels,)))
        return pixels
    if x.width == width and part.rate == (1, 1):
        return x
    out = tape.tensor(f"{part.name} input", rows, width)
    tape.add(Operation(name=out.name, kernel="memory", inputs=(x,), outputs=(out,)))
    return out
