"""A model as wrap units: what is gathered, computed and dropped together.

Every strategy sees the same list in forward order: embedding, blocks, the last norm and the head.
"""

from math import prod

from zeroplan.records import dataclass, replace
from zeroplan.spec.architecture import Architecture, Attention, Block, Component, Head, Stack
from zeroplan.spec.latent_attention import LatentAttention
from zeroplan.units import FP32, INT64, Size
from zeroplan.workload.across import close_gradients, crosses, open_gradients
from zeroplan.workload.adapting import tuned
from zeroplan.workload.attention import turns_wide
from zeroplan.workload.batch import Batch
from zeroplan.workload.components import component
from zeroplan.workload.embedding import embedding, weights
from zeroplan.workload.float8 import in_float8
from zeroplan.workload.loss import head_and_loss, kept_logits_bytes
from zeroplan.workload.norms import norm
from zeroplan.workload.position_bias import shared_bias
from zeroplan.workload.primitives import add, cast, dropout, gated
from zeroplan.workload.projection import chain, projection
from zeroplan.workload.tape import Operation, Parameter, Summed, Tape, Tensor
from zeroplan.workload.unit import Unit, UnitKind

__all__ = ["Unit", "Workload", "workload"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """A model counted for one batch. Equal blocks are one and the same `Unit` object."""

    units: tuple[Unit, ...]
    buffers_bytes: tuple[Size, ...]
    """Tables that every rank holds whole and nobody trains (rotary cosines and sines). [B]"""
    inputs_bytes: tuple[Size, ...]
    """What a micro-step reads besides the labels: token ids, pixels. [B]"""
    kept_logits_bytes: Size = 0
    """Logits that the training loop holds between micro-steps. [B]"""
    batch: Batch

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter in forward order, tied ones included."""
        return tuple(p for unit in self.units for p in unit.parameters)


def workload(architecture: Architecture, batch: Batch) -> Workload:
    """Write a model's forward pass down for a batch."""
    units: list[Unit] = []
    how: Summed
    *earlier, last = architecture.stacks
    for stack in earlier:
        source = units[-1].output if units else None
        tied = any(table.tied for later in architecture.stacks for table in later.embeddings)
        how = "in place" if tied else ""
        units += _stack_units(stack, _stack_batch(stack, batch), units, how)
        units += _norm_units(stack, batch, source)
    head = architecture.head
    how = "anew" if head is not None and head.tied else ""
    source = units[-1].output if units else None
    units += _stack_units(last, _stack_batch(last, batch), units, how)
    units.append(_head_unit(head, last, batch, source))
    tuning = batch.tuning
    return Workload(
        units=tuple(units) if tuning is None else tuned(units, batch, tuning),
        buffers_bytes=_rotary_tables(last, batch),
        inputs_bytes=tuple(_input_bytes(s, _stack_batch(s, batch)) for s in architecture.stacks),
        kept_logits_bytes=kept_logits_bytes(head, batch),
        batch=batch,
    )


def _stack_batch(stack: Stack, batch: Batch) -> Batch:
    return batch if stack.positions is None else replace(batch, sequence_length=stack.positions)


def _stack_units(stack: Stack, batch: Batch, before: list[Unit], summed: Summed) -> list[Unit]:
    """Write a tower down that reads what the tower before it made."""
    written: dict[Block, Unit] = {}
    source = before[-1].output if before else None
    units = [_embedding_unit(stack, batch, source, summed)]
    for block in stack.blocks:
        if block not in written:
            written[block] = _block_unit(stack, block, batch)
        units.append(written[block])
    return units


def _unit(tape: Tape, name: str, kind: UnitKind, source: Tensor | None, out: Tensor) -> Unit:
    return Unit(
        name=name,
        kind=kind,
        operations=tuple(tape.operations),
        input=source,
        output=out,
        gradient_itemsize=tape.batch.parameter_itemsize,
        compiled=tape.batch.compile,
    )


def _hidden_states(tape: Tape, stack: Stack) -> Tensor:
    """Return what enters a unit; the residual stream has the parameters' dtype under autocast."""
    size = tape.batch.parameter_itemsize
    return tape.tensor("hidden states", tape.batch.tokens, stack.hidden, itemsize=size)


def _embedding_unit(stack: Stack, batch: Batch, source: Tensor | None, summed: Summed) -> Unit:
    tape = Tape(batch)
    entering = None if source is None else tape.like("states of the tower before", source)
    x = chain(tape, None, stack.stem, batch.tokens)
    for table in stack.embeddings:
        row = embedding(tape, table, batch.tokens, summed=summed)
        if table.projection is not None:
            row = projection(tape, row, table.projection, batch.tokens)
        x = row if x is None else add(tape, x, row, "sum of embeddings")
    if x is None:
        size = tape.batch.parameter_itemsize
        x = tape.tensor("input", batch.tokens, stack.hidden, itemsize=size, differentiable=False)
        tape.add(Operation(name="input", kernel="none", outputs=(x,)))
    x = cast(tape, x, tape.batch.parameter_itemsize, "input in the parameters' dtype")
    if entering is not None:
        x = _joined(tape, entering, x, stack)
    tape.add(Operation(name="extras", kernel="none", parameters=weights(stack.extras)))
    if stack.embedding_norm is not None:
        x = norm(tape, x, stack.embedding_norm, name="embedding_norm")
    if stack.dropout:
        x = dropout(tape, x, "embedding dropout")
    shared_bias(tape, stack.blocks)
    close_gradients(tape, stack)
    return _unit(tape, stack.label("embedding"), "embedding", entering, x)


def _joined(tape: Tape, states: Tensor, x: Tensor, stack: Stack) -> Tensor:
    """Let the states of the tower before in: all along for cross-attention, else among the tokens.

    Cross-attention's keys and values keep them until the first block's backward is done, and the
    blocks sum their gradient.
    """
    apart = crosses(stack)
    out = tape.view("input", x, x.width) if apart else tape.like("input", x)
    tape.add(
        Operation(
            name="join",
            kernel="none" if apart else "memory",
            inputs=(x,) if apart else (states, x),
            outputs=(out,),
            saved=(states,) if apart else (),
            passes_gradient=apart,
        )
    )
    return out


def _block_unit(stack: Stack, block: Block, batch: Batch) -> Unit:
    tape = Tape(batch)
    x = _hidden_states(tape, stack)
    out = (_parallel if block.parallel else _sequential)(tape, x, block)
    tape.hold(x)
    if block.extras:
        tape.add(Operation(name="extras", kernel="none", parameters=weights(block.extras)))
    if batch.float8 != "none":
        tape.operations = [in_float8(each, batch.float8) for each in tape.operations]
    return _unit(tape, stack.label("block"), "block", x, out)


def _sequential(tape: Tape, x: Tensor, block: Block) -> Tensor:
    for part in block.sublayers:
        tape.prefix = f"{part.name}."
        branch = x
        if part.norm is not None:
            branch = norm(tape, x, part.norm, name="norm")
        branch = component(tape, branch, part.component)
        if part.post_norm is not None:
            branch = norm(tape, branch, part.post_norm, name="post_norm")
        if part.gate is not None:
            branch = gated(tape, branch, part.gate)
        x = add(tape, x, branch)
        if part.residual_norm is not None:
            x = norm(tape, x, part.residual_norm, name="residual_norm")
    return x


def _parallel(tape: Tape, x: Tensor, block: Block) -> Tensor:
    out, normed = x, x
    for index, part in enumerate(block.sublayers):
        tape.prefix = f"{part.name}."
        if part.norm is not None and not (block.shared_norm and index):
            normed = norm(tape, x, part.norm, name="norm")
        out = add(tape, out, component(tape, normed, part.component))
    return out


def _norm_units(stack: Stack, batch: Batch, before: Tensor | None) -> list[Unit]:
    if stack.final_norm is None and not stack.tail:
        return []
    tape = Tape(_stack_batch(stack, batch))
    open_gradients(tape, stack, before)
    x = _hidden_states(tape, stack)
    out = _norm_and_tail(tape, x, stack)
    return [_unit(tape, stack.label("norm"), "norm", x, out)]


def _norm_and_tail(tape: Tape, x: Tensor, stack: Stack) -> Tensor:
    out = x
    if stack.final_norm is not None:
        out = norm(tape, x, stack.final_norm, name="norm")
    if stack.final_dropout:
        out = dropout(tape, out, "final dropout")
    return chain(tape, out, stack.tail, x.rows) or out


def _head_unit(head: Head | None, stack: Stack, batch: Batch, before: Tensor | None) -> Unit:
    tape = Tape(_stack_batch(stack, batch))
    open_gradients(tape, stack, before)
    x = _hidden_states(tape, stack)
    out = _norm_and_tail(tape, x, stack)
    if head is not None:
        if head.pooled:
            first = replace(out, name="pooled", rows=batch.sequences, base=out.storage)
            tape.add(Operation(name="pool", kernel="none", inputs=(out,), outputs=(first,)))
            out = first
        if head.transform is not None:
            out = projection(tape, out, head.transform, out.rows)
        tape.add(Operation(name="extras", kernel="none", parameters=weights(head.extras)))
        out = head_and_loss(tape, out, head)
    else:  # a loss of the states themselves
        tape.purpose = "loss"
        states, out = out, tape.tensor("loss", 1, 1, itemsize=FP32)
        tape.add(Operation(name="loss", kernel="memory", inputs=(states,), outputs=(out,)))
    return _unit(tape, "head", "head", x, out)


def _input_bytes(stack: Stack, batch: Batch) -> Size:
    """Return 64-bit token ids, or fp32 pixels or frames."""
    if not stack.stem:
        return batch.tokens * INT64
    first = stack.stem[0]
    rows = batch.tokens * first.rate[0] // first.rate[1]
    return rows * first.widths[0] * prod(first.kernel) * FP32


def _rotary_tables(stack: Stack, batch: Batch) -> tuple[Size, ...]:
    """Cosines and sines [sequence, head_dim], in fp32 if heads are turned so, or complex64."""
    dims = {_rotary_dim(part.component) for block in stack.blocks for part in block.sublayers}
    dims.discard(0)
    if not dims:
        return ()
    elements = batch.sequence_length * max(dims)
    if batch.rope == "complex":
        return (elements * 4,)
    wide = any(turns_wide(part.component) for block in stack.blocks for part in block.sublayers)
    return 2 * (elements * (FP32 if wide else batch.itemsize),)


def _rotary_dim(part: Component) -> int:
    """Elements of a head that are rotated; 0 where none are."""
    if isinstance(part, LatentAttention):
        return part.rope_dim
    if isinstance(part, Attention) and part.position == "rope":
        return part.rotary_dim or part.head_dim
    return 0
