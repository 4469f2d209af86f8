"""Recurrent token mixers on the tape: Mamba, Mamba-2 and the gated delta rule.

Each is projections, a short causal convolution and one fused scan; the scans are written as the
chunked products that their training kernels run.
"""

from zeroplan.spec.architecture import Norm
from zeroplan.spec.mixers import GatedDeltaNet, Mamba, Mamba2
from zeroplan.units import FP32, Size, ceil_div
from zeroplan.workload.norms import norm
from zeroplan.workload.primitives import activation, linear, multiply
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["gated_delta_net", "mamba", "mamba2"]

SCAN_CHUNK = 2048
"""Tokens between two states that the Mamba-1 scan keeps (mamba-ssm 2.2, selective_scan_fwd)."""


def mamba(tape: Tape, x: Tensor, part: Mamba) -> Tensor:
    """Write a Mamba-1 layer down (transformers 5.24, MambaMixer and JambaMambaMixer)."""
    both = _linear(tape, x, 2 * part.inner, "in_proj", bias=part.bias)
    u, gate = _split(tape, both, u=part.inner, gate=part.inner)
    u = _convolution(tape, u, part.kernel, bias=part.conv_bias)
    rank, state = part.time_step_rank, part.state
    selection = _linear(tape, u, rank + 2 * state, "x_proj")
    dt, b, c = _split(tape, selection, dt=rank, b=state, c=state)
    if part.inner_norms:
        dt, b, c = (
            norm(tape, t, Norm(kind="rms", width=t.width), name=f"{t.name}_layernorm")
            for t in (dt, b, c)
        )
    dt = _linear(tape, dt, part.inner, "dt_proj", bias=True)
    y = _scan(
        tape,
        (u, dt, b, c, gate),
        shapes={"A_log": (part.inner, state), "D": (part.inner,)},
        width=part.inner,
        states=ceil_div(x.rows, SCAN_CHUNK) * part.inner * 2 * state,
        # the update of a channel's state and its read-out, one multiply-add per element each
        products=(Matmul(m=x.rows, n=state, k=part.inner, count=2),),
    )
    out = _linear(tape, y, part.hidden, "out_proj", bias=part.bias)
    tape.hold(x, u, gate, y)
    return out


def mamba2(tape: Tape, x: Tensor, part: Mamba2) -> Tensor:
    """Write a Mamba-2 layer down (transformers 5.24, Mamba2Mixer and NemotronHMamba2Mixer)."""
    shared = part.groups * part.state
    widths = {"gate": part.inner, "xbc": part.inner + 2 * shared, "dt": part.heads}
    fused = _linear(tape, x, sum(widths.values()), "in_proj", bias=part.bias)
    gate, xbc, dt = _split(tape, fused, **widths)
    xbc = _convolution(tape, xbc, part.kernel, bias=part.conv_bias)
    y = _scan(
        tape,
        (xbc, dt),
        shapes=dict.fromkeys(("dt_bias", "A_log", "D"), (part.heads,)),
        width=part.inner,
        states=ceil_div(x.rows, part.chunk) * part.inner * part.state,
        products=(
            Matmul(m=x.rows, n=part.chunk, k=shared),
            Matmul(m=x.rows, n=part.chunk, k=part.inner),
            Matmul(m=x.rows, n=part.state, k=part.inner, count=2),
        ),
    )
    y = multiply(tape, y, activation(tape, gate, "silu"), "gated scan")
    if part.gated_norm:
        y = norm(tape, y, Norm(kind="rms", width=part.inner), name="norm")
    bias = part.bias if part.output_bias is None else part.output_bias
    out = _linear(tape, y, part.hidden, "out_proj", bias=bias)
    tape.hold(x, gate, xbc, dt, y)
    return out


def gated_delta_net(tape: Tape, x: Tensor, part: GatedDeltaNet) -> Tensor:
    """Write a gated delta rule layer down (transformers 5.24, Qwen3NextGatedDeltaNet).

    The products are the chunked form of Yang et al., arXiv 2406.06484, section 3.2: three of a
    chunk with the keys, two with the values, three of keys with values.
    """
    heads, value = part.value_heads, part.value_heads * part.value_dim
    qkv, gate, b, a = _delta_inputs(tape, x, part)
    qkv = _convolution(tape, qkv, part.kernel, bias=False)
    y = _scan(
        tape,
        (qkv, b, a),
        shapes={"dt_bias": (heads,), "A_log": (heads,)},
        width=value,
        states=ceil_div(x.rows, part.chunk) * value * part.key_dim,
        products=(
            Matmul(m=x.rows, n=part.chunk, k=part.key_dim, count=3 * heads),
            Matmul(m=x.rows, n=part.chunk, k=part.value_dim, count=2 * heads),
            Matmul(m=x.rows, n=part.key_dim, k=part.value_dim, count=3 * heads),
        ),
    )
    y = norm(tape, y, Norm(kind="rms", width=part.value_dim), name="norm")
    y = multiply(tape, y, activation(tape, gate, "silu"), "gated scan")
    out = _linear(tape, y, part.hidden, "out_proj")
    tape.hold(x, qkv, gate, b, a, y)
    return out


def _delta_inputs(tape: Tape, x: Tensor, part: GatedDeltaNet) -> tuple[Tensor, ...]:
    value = part.value_heads * part.value_dim
    qkv = 2 * part.key_heads * part.key_dim + value
    heads = part.value_heads
    if part.fused:
        wide = _linear(tape, x, qkv + value, "in_proj_qkvz")
        narrow = _linear(tape, x, 2 * heads, "in_proj_ba")
        return (
            *_split(tape, wide, qkv=qkv, gate=value),
            *_split(tape, narrow, b=heads, a=heads),
        )
    widths = {"in_proj_qkv": qkv, "in_proj_z": value, "in_proj_b": heads, "in_proj_a": heads}
    return tuple(_linear(tape, x, width, name) for name, width in widths.items())


def _linear(tape: Tape, x: Tensor, width: int, name: str, *, bias: bool = False) -> Tensor:
    return linear(tape, x, width, name=name, role="mixer", bias=bias)


def _split(tape: Tape, x: Tensor, **widths: int) -> tuple[Tensor, ...]:
    views = tuple(tape.view(name, x, width) for name, width in widths.items())
    tape.add(Operation(name="split", kernel="none", inputs=(x,), outputs=views))
    return views


def _convolution(tape: Tape, x: Tensor, kernel: int, *, bias: bool) -> Tensor:
    """Convolve each channel with its own taps and apply SiLU, in one kernel that keeps its input."""
    out = tape.like("convolution", x)
    full = f"{tape.prefix}conv1d"
    parameters = [Parameter(name=f"{full}.weight", shape=(x.width, 1, kernel), role="mixer")]
    if bias:
        parameters.append(Parameter(name=f"{full}.bias", shape=(x.width,), role="mixer"))
    tape.add(
        Operation(
            name="convolution",
            kernel="memory",
            inputs=(x,),
            outputs=(out,),
            parameters=tuple(parameters),
            saved=(x,),
            matmuls=(Matmul(m=x.rows, n=x.width, k=kernel),),
            module=full,
        )
    )
    return out


def _scan(
    tape: Tape,
    inputs: tuple[Tensor, ...],
    *,
    shapes: dict[str, tuple[int, ...]],
    width: int,
    states: Size,
    products: tuple[Matmul, ...],
) -> Tensor:
    """Scan along the sequence in one kernel, which keeps its operands and fp32 chunk states."""
    out = tape.tensor("scan", inputs[0].rows, width)
    kept = tape.tensor("states", states, 1, itemsize=FP32, differentiable=False)
    tape.add(
        Operation(
            name="scan",
            kernel="memory",
            inputs=inputs,
            outputs=(out, kept),
            parameters=tuple(
                Parameter(name=f"{tape.prefix}{name}", shape=shape, role="mixer")
                for name, shape in shapes.items()
            ),
            saved=(*inputs, kept),
            matmuls=products,
        )
    )
    return out
