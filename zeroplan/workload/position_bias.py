"""Learned biases of the scores by relative position, on the tape.

transformers 5.24, `T5Attention.compute_bias` and `create_position_bias_mask`: a row of a table for
every pair of positions, of which every layer's kernel gets a copy laid out by head.
"""

from zeroplan.records import replace
from zeroplan.spec.architecture import Attention, Block
from zeroplan.units import INT64, Size
from zeroplan.workload.tape import Operation, Tape, Tensor

__all__ = ["bias_gradients", "score_bias", "shared_bias", "shared_gradient"]


def shared_bias(tape: Tape, blocks: tuple[Block, ...]) -> None:
    """Hold what the first layer of a stack makes for all of them.

    It outlives that layer, so it is written down with what comes before the layers: 64-bit indices
    into the table, and the zeros that cross-attention adds.
    """
    for part in (sublayer.component for block in blocks[:1] for sublayer in block.sublayers):
        if isinstance(part, Attention) and part.shares_bias:
            (_zeros if part.memory_width else _looked_up)(tape, part)


def score_bias(tape: Tape, part: Attention) -> tuple[Tensor, ...]:
    """Return what a layer's kernel keeps of the bias: a copy, masked if it is causal."""
    if part.position != "relative":
        return ()
    if part.memory_width:
        return () if part.shares_bias else (_zeros(tape, part),)
    own = () if part.shares_bias else (_looked_up(tape, part),)
    out = _bias(tape, part, "bias by head")
    rows = out.rows // part.heads
    mask = tape.tensor("causal mask", rows, out.width, itemsize=1, differentiable=False)
    kept = (mask,) if part.causal else ()
    tape.add(
        Operation(name=out.name, kernel="memory", inputs=own, outputs=(out, *kept), saved=kept)
    )
    return (out,)


def bias_gradients(tape: Tape, part: Attention) -> tuple[Size, ...]:
    """Return the gradients of the scores of all sequences, which are summed to the bias's. [B]"""
    if part.position != "relative" or part.memory_width:
        return ()
    count = tape.batch.sequences
    return (_bias(tape, part, "gradient").bytes * count * (count > 1),)


def shared_gradient(tape: Tape, part: Attention) -> Tensor:
    """Return the tensor whose gradient is a sum over all layers."""
    return _bias(tape, part, "position bias")


def _bias(tape: Tape, part: Attention, name: str) -> Tensor:
    """Return a tensor [heads x queries, keys]."""
    length = tape.batch.sequence_length
    return tape.tensor(name, part.heads * length, part.memory_positions or length)


def _zeros(tape: Tape, part: Attention) -> Tensor:
    zeros = replace(_bias(tape, part, "no bias"), differentiable=False)
    tape.add(Operation(name=zeros.name, kernel="memory", outputs=(zeros,), saved=(zeros,)))
    return zeros


def _looked_up(tape: Tape, part: Attention) -> Tensor:
    """Look the table up for every pair of positions; backward needs the indices alone."""
    bias = _bias(tape, part, "position bias")
    rows = bias.rows // part.heads
    pairs = tape.tensor("buckets", rows, bias.width, itemsize=INT64, differentiable=False)
    tape.add(Operation(name=bias.name, kernel="memory", outputs=(bias, pairs), saved=(pairs,)))
    return bias
