"""Attention on the tape: projections, positions, the attention kernel, the output projection."""

from zeroplan.spec.architecture import Attention, Component
from zeroplan.units import FP32
from zeroplan.workload.attention_kernels import attention_kernel
from zeroplan.workload.norms import norm
from zeroplan.workload.primitives import (
    activation,
    add,
    cast,
    dropout,
    elementwise,
    linear,
    multiply,
    scale,
)
from zeroplan.workload.tape import Operation, Tape, Tensor

__all__ = ["attention", "rotary", "turns_wide"]


def attention(tape: Tape, x: Tensor, part: Attention) -> Tensor:
    """Write one attention layer down; x is [tokens, hidden]."""
    q, k, v = _projections(tape, x, part)
    gate = None
    if part.gated:
        q, gate = _query_and_gate(tape, q)
    if part.query_norm is not None:
        q = norm(tape, q, part.query_norm, name="q_norm")
    if part.key_norm is not None:
        k = norm(tape, k, part.key_norm, name="k_norm")
    if part.position == "rope":
        given = q, k
        q, k = (_turned(tape, each, part) for each in given)
        if tape.batch.rope == "complex":
            tape.hold(*given)  # one statement replaces both
    out = attention_kernel(tape, q, k, v, part)
    joined = part.position == "rope" and part.rotary_dim is not None
    if joined and tape.batch.attention != "math":
        out = elementwise(tape, "attention by token", (out,))  # joined q is laid out by head
    if gate is not None:
        out = multiply(tape, out, activation(tape, gate, "sigmoid"), "gated attention")
    y = linear(
        tape,
        out,
        part.hidden,
        name="o_proj",
        role="attention",
        bias=part.output_bias,
        transposed=part.transposed,
    )
    tape.hold(x, q, k, v, out)
    return dropout(tape, y, "attention dropout") if part.dropout else y


def _projections(tape: Tape, x: Tensor, part: Attention) -> tuple[Tensor, Tensor, Tensor]:
    width, kv_width = part.heads * part.head_dim, part.kv_heads * part.head_dim
    if part.fused_qkv:
        fused = linear(
            tape,
            x,
            width + 2 * kv_width,
            name="qkv_proj",
            role="attention",
            bias=part.qkv_bias,
            transposed=part.transposed,
        )
        views = tuple(
            tape.view(name, fused, columns)
            for name, columns in (("q", width), ("k", kv_width), ("v", kv_width))
        )
        tape.add(Operation(name="split", kernel="none", inputs=(fused,), outputs=views))
        return views[0], views[1], views[2]
    source = x
    if part.memory_width is not None:
        rows = x.rows
        if part.memory_positions is not None:
            rows = tape.batch.sequences * part.memory_positions
        # kept once by the stack that wrote it, so that it adds no storage here
        source = Tensor(
            "memory",
            rows,
            part.memory_width,
            x.itemsize,
            differentiable=False,
            base=x.storage,
        )
    query_width = width * 2 if part.gated else width
    q = linear(tape, x, query_width, name="q_proj", role="attention", bias=part.qkv_bias)
    key_bias = part.qkv_bias if part.key_bias is None else part.key_bias
    k = linear(tape, source, kv_width, name="k_proj", role="attention", bias=key_bias)
    v = linear(tape, source, kv_width, name="v_proj", role="attention", bias=part.qkv_bias)
    return q, k, v


def _query_and_gate(tape: Tape, both: Tensor) -> tuple[Tensor, Tensor]:
    """Split the projection per head: neither half is contiguous, reshaping the gate copies it."""
    q = tape.view("q", both, both.width // 2)
    gate = tape.tensor("gate", both.rows, both.width // 2)
    tape.add(Operation(name="split", kernel="memory", inputs=(both,), outputs=(q, gate)))
    return q, gate


def _turned(tape: Tape, x: Tensor, part: Attention) -> Tensor:
    """Rotate each head, or its first elements, which are then joined with the others.

    Classes that have a `rotary_dim` join even where no others are left (Phi-3).
    """
    if part.rotary_dim is None:
        return rotary(tape, x, wide=part.wide_rotary)
    width = x.width * part.rotary_dim // part.head_dim
    first = tape.view(f"{x.name} to turn", x, width)
    rest = tape.view(f"{x.name} to pass", x, x.width - width)
    tape.add(Operation(name="split", kernel="none", inputs=(x,), outputs=(first, rest)))
    joined = tape.like(f"{x.name} joined", x)
    parts = rotary(tape, first), rest
    tape.add(Operation(name="join", kernel="memory", inputs=parts, outputs=(joined,)))
    return joined


def turns_wide(part: Component) -> bool:
    """Return whether a component turns its heads in fp32."""
    return isinstance(part, Attention) and part.wide_rotary


def rotary(tape: Tape, x: Tensor, *, wide: bool = False) -> Tensor:
    """Rotate by position: halves in the compute dtype, or pairs through fp32 complex numbers.

    Neither keeps x for backward: the tables of cosines and sines need no gradient. Where the tables
    are fp32 (`wide`) so are the products and their sum.
    """
    if tape.batch.rope == "complex":
        pairs = cast(tape, x, FP32, f"{x.name} fp32")
        return cast(tape, scale(tape, pairs, f"{x.name} rotated"), x.itemsize, f"{x.name} narrow")
    cosine = _turn_by(tape, x, f"{x.name} cosine", wide=wide)
    half = tape.like(f"{x.name} half", x)
    tape.add(
        Operation(
            name=f"{x.name} rotate half",
            kernel="memory",
            inputs=(x,),
            outputs=(half,),
            forward_temporaries=(x.bytes // 2,),
            backward_temporaries=(x.bytes // 2,),
        )
    )
    sine = _turn_by(tape, half, f"{x.name} sine", wide=wide)
    rotated = cast(tape, add(tape, cosine, sine, f"{x.name} rotated"), x.itemsize)
    tape.hold(x)
    return rotated


def _turn_by(tape: Tape, x: Tensor, name: str, *, wide: bool) -> Tensor:
    """Multiply by a table; an fp32 one widens the product, and its gradient on the way back."""
    if not wide or x.itemsize == FP32:
        return scale(tape, x, name)
    out = tape.tensor(name, x.rows, x.width, itemsize=FP32)
    tape.add(
        Operation(
            name=name,
            kernel="memory",
            inputs=(x,),
            outputs=(out,),
            backward_temporaries=(out.bytes,),
        )
    )
    return out
