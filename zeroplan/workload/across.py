"""What all blocks of a stack share: the states that they attend to, the bias of their scores.

Its gradient is a sum over the blocks: it is there from the last block's backward to the first's, so
the unit after the blocks opens it. The bias's is closed before the first block; with the states' the
stack before goes back.
"""

from zeroplan.spec.architecture import Attention, Stack
from zeroplan.workload.position_bias import shared_gradient
from zeroplan.workload.tape import Operation, Tape, Tensor

__all__ = ["close_gradients", "crosses", "open_gradients"]


def crosses(stack: Stack) -> bool:
    """Return whether a block attends to the states of the stack before."""
    return any(part.memory_width is not None for part in _attentions(stack))


def open_gradients(tape: Tape, stack: Stack, states: Tensor | None) -> None:
    """Let the sums of gradients begin, as backward leaves this unit."""
    memory = (states,) if states is not None and crosses(stack) else ()
    shared = (*memory, *_biases(tape, stack))
    if shared:
        tape.add(Operation(name="sums over the blocks", kernel="none", opens=shared))


def close_gradients(tape: Tape, stack: Stack) -> None:
    """Let the biases' sum go, once backward has passed the first block."""
    biases = _biases(tape, stack)
    if biases:
        tape.add(Operation(name="sums over the blocks", kernel="none", closes=biases))


def _biases(tape: Tape, stack: Stack) -> tuple[Tensor, ...]:
    return tuple(
        shared_gradient(tape, part)
        for part in _attentions(stack)
        if part.shares_bias and part.relative_buckets
    )


def _attentions(stack: Stack) -> list[Attention]:
    return [
        part.component
        for block in dict.fromkeys(stack.blocks)
        for part in block.sublayers
        if isinstance(part.component, Attention)
    ]
