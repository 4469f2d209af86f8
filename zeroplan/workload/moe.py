"""A mixture of experts on the tape: router, grouped matmuls over the routed tokens, shared expert.

The grouped path of transformers 5.24, `integrations/moe.py` (`grouped_mm_experts_forward`): rows are
gathered expert by expert, so that a routed token keeps 4 h + 8 f bytes in a 2-byte dtype.
"""

from zeroplan.records import dataclass, replace
from zeroplan.spec.architecture import Mlp
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.units import FP32, Size
from zeroplan.workload.mlp import mlp
from zeroplan.workload.primitives import activation, add, cast, linear, multiply
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["mixture_of_experts"]

INT32 = 4
INT64 = 8


@dataclass(frozen=True, slots=True)
class _Routing:
    """Which token goes to which expert: one row per routed token, sorted by expert."""

    scores: Tensor
    order: Tensor
    offsets: Tensor
    """Where each expert's rows end."""


def mixture_of_experts(tape: Tape, x: Tensor, part: MixtureOfExperts) -> Tensor:
    """Write one mixture down; x and the result are [tokens, hidden]."""
    routing = _route(tape, x, part)
    if part.latent_width is None:
        out = _combine(tape, x, _experts(tape, x, routing, part), routing.order)
    else:
        out = _latent(tape, x, routing, part, part.latent_width)
    if part.shared_width is not None:
        out = add(tape, out, _shared(tape, x, part, part.shared_width), "sum with shared expert")
    tape.hold(x)
    return out


def _route(tape: Tape, x: Tensor, part: MixtureOfExperts) -> _Routing:
    """Score the experts, keep the best of each token, sort the pairs by expert.

    The kept scores are divided by their sum, which not every family does: 4 (K + 1) bytes a token.
    """
    chosen = part.experts_per_token
    logits = linear(tape, x, part.experts, name="router", role="router", bias=part.router_bias)
    probabilities = tape.tensor("router probabilities", x.rows, part.experts, itemsize=FP32)
    _memory(tape, "router softmax", (logits,), (probabilities,), (probabilities,))
    kept = tape.tensor("scores fp32", x.rows, chosen, itemsize=FP32)
    ids = _indices(tape, "expert ids", x.rows, chosen)
    _memory(tape, "top k", (probabilities,), (kept, ids), (ids,))
    total = tape.tensor("sum of scores", x.rows, 1, itemsize=FP32)
    _memory(tape, "normalise scores", (kept,), (total,), (kept, total))
    order = _indices(tape, "order", x.rows * chosen, 1)
    offsets = tape.tensor("offsets", part.experts, 1, itemsize=INT32, differentiable=False)
    _memory(tape, "sort by expert", (ids,), (order, offsets))
    return _Routing(cast(tape, kept, x.itemsize, "scores"), order, offsets)


def _latent(tape: Tape, x: Tensor, routing: _Routing, part: MixtureOfExperts, width: int) -> Tensor:
    """Bring tokens to a narrower width, run the experts there, and bring the sum back."""
    narrow = linear(tape, x, width, name="fc1_latent_proj", role="mlp", bias=part.latent_bias)
    routed = _experts(tape, narrow, routing, replace(part, hidden=width))
    out = _combine(tape, narrow, routed, routing.order)
    return linear(tape, out, x.width, name="fc2_latent_proj", role="mlp", bias=part.latent_bias)


def _experts(tape: Tape, x: Tensor, routing: _Routing, part: MixtureOfExperts) -> Tensor:
    """Run the chosen experts over the gathered rows; the result is weighed by the scores."""
    rows = _gather(tape, x, routing.order, "gathered tokens", x.width)
    weights = _gather(tape, routing.scores, routing.order, "gathered scores", 1)
    first, last = _weights(tape, part)
    columns = 2 * part.width if part.gated else part.width
    inner = _grouped(tape, (rows, routing.offsets), columns, "experts up", first)
    if part.gated:
        gate, up = (tape.view(name, inner, part.width) for name in ("gate", "up"))
        tape.add(Operation(name="split", kernel="none", inputs=(inner,), outputs=(gate, up)))
        inner = multiply(tape, activation(tape, gate, part.activation), up, "gated")
    else:
        inner = activation(tape, inner, part.activation)
    out = _grouped(tape, (inner, routing.offsets), part.hidden, "experts down", last)
    return multiply(tape, out, weights, "weighed")


def _combine(tape: Tape, x: Tensor, routed: Tensor, order: Tensor) -> Tensor:
    """Bring the rows back into token order and sum each token's experts."""
    restored = _gather(tape, routed, order, "restored", routed.width)
    out = tape.like("mixture", x)
    _memory(tape, "sum", (restored,), (out,))
    return out


def _shared(tape: Tape, x: Tensor, part: MixtureOfExperts, width: int) -> Tensor:
    prefix = tape.prefix
    tape.prefix = f"{prefix}shared_expert."
    expert = Mlp(
        hidden=part.hidden,
        width=width,
        gated=part.gated,
        activation=part.activation,
        bias=part.shared_bias,
    )
    out = mlp(tape, x, expert)
    tape.prefix = prefix
    if not part.shared_gate:
        return out
    gate = linear(tape, x, 1, name="shared_expert_gate", role="router")
    weight = tape.like("shared weight", gate)
    _memory(tape, "sigmoid", (gate,), (weight,), (weight,))
    return multiply(tape, out, weight, "weighed shared expert")


def _gather(tape: Tape, x: Tensor, order: Tensor, name: str, width: int) -> Tensor:
    """Index rows: backward needs the index alone."""
    out = tape.tensor(name, order.rows, width, itemsize=x.itemsize)
    index = tape.like(f"{name} index", order)
    _memory(tape, name, (x, order), (out, index), (index,))
    return out


def _memory(
    tape: Tape,
    name: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    saved: tuple[Tensor, ...] = (),
) -> None:
    """Add an operation that memory traffic bounds."""
    tape.add(Operation(name=name, kernel="memory", inputs=inputs, outputs=outputs, saved=saved))


def _grouped(
    tape: Tape,
    rows: tuple[Tensor, Tensor],
    width: int,
    name: str,
    parameters: tuple[Parameter, ...],
) -> Tensor:
    """Multiply every row by its own expert's matrix; `rows` come with the experts' offsets."""
    x, _ = rows
    out = tape.tensor(name, x.rows, width)
    tape.add(
        Operation(
            name=name,
            kernel="matmul",
            inputs=rows,
            outputs=(out,),
            parameters=parameters,
            saved=rows,
            matmuls=(Matmul(m=x.rows, n=width, k=x.width),),
            module=f"{tape.prefix}experts",
            exchanges=True,
        )
    )
    return out


def _weights(
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


def _indices(tape: Tape, name: str, rows: Size, width: int) -> Tensor:
    return tape.tensor(name, rows, width, itemsize=INT64, differentiable=False)
