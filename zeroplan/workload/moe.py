"""A mixture of experts on the tape: router, grouped matmuls over the routed tokens, shared expert.

The grouped path of transformers 5.24, `integrations/moe.py` (`grouped_mm_experts_forward`): rows are
gathered expert by expert, so that a routed token keeps 4 h + 8 f bytes in a 2-byte dtype.
"""

from zeroplan.records import replace
from zeroplan.spec.architecture import Mlp
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.units import Size, ceil_div
from zeroplan.workload.expert_loop import expert_loop
from zeroplan.workload.experts import activated, expert_weights
from zeroplan.workload.mlp import mlp
from zeroplan.workload.primitives import add, cast, linear, multiply, weigh
from zeroplan.workload.routing import Routing, indices, memory, route
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["mixture_of_experts"]

INT32 = 4


def mixture_of_experts(tape: Tape, x: Tensor, part: MixtureOfExperts) -> Tensor:
    """Write one mixture down; x and the result are [tokens, hidden]."""
    routing = route(tape, x, part)
    if part.latent_width is None:
        out = _routed(tape, x, routing, part)
    else:
        out = _latent(tape, x, routing, part, part.latent_width)
    if part.shared_width is not None:
        out = add(tape, out, _shared(tape, x, part, part.shared_width), "sum with shared expert")
    tape.hold(x)
    return out


def _routed(tape: Tape, x: Tensor, routing: Routing, part: MixtureOfExperts) -> Tensor:
    if tape.batch.experts == "loop":
        return expert_loop(tape, x, routing, part)
    return _grouped_experts(tape, x, routing, part)


def _latent(tape: Tape, x: Tensor, routing: Routing, part: MixtureOfExperts, width: int) -> Tensor:
    """Bring tokens to a narrower width, run the experts there, and bring the sum back."""
    narrow = linear(tape, x, width, name="fc1_latent_proj", role="mlp", bias=part.latent_bias)
    out = _routed(tape, narrow, routing, replace(part, hidden=width))
    return linear(tape, out, x.width, name="fc2_latent_proj", role="mlp", bias=part.latent_bias)


def _grouped_experts(tape: Tape, x: Tensor, routing: Routing, part: MixtureOfExperts) -> Tensor:
    """Sort the routed rows by expert, multiply all of them at once, and sum them up by token."""
    order = indices(tape, "order", _rows(tape, x, part))
    offsets = tape.tensor("offsets", part.experts, 1, itemsize=INT32, differentiable=False)
    memory(tape, "sort by expert", (routing.ids,), (order, offsets))
    rows = _gather(tape, x, order, "gathered tokens", x.width)
    weights = _gather(tape, routing.scores, order, "gathered scores", 1)
    first, last = expert_weights(tape, part)
    columns = 2 * part.width if part.gated else part.width
    inner = _grouped(tape, (rows, offsets), columns, "experts up", first)
    inner = activated(tape, inner, part)
    out = _grouped(tape, (inner, offsets), part.hidden, "experts down", last)
    restored = _gather(tape, weigh(tape, out, weights, "weighed"), order, "restored", part.hidden)
    total = tape.tensor("mixture", x.rows, part.hidden, itemsize=restored.itemsize)
    memory(tape, "sum", (restored,), (total,))
    return cast(tape, total, x.itemsize, "narrow mixture")


def _rows(tape: Tape, x: Tensor, part: MixtureOfExperts) -> Size:
    """Return the rows of the grouped matmuls: the routed tokens, and room to align every expert.

    torchtitan allocates for the worst case (torchtitan/models/common/moe/utils.py, `_permute`).
    """
    routed, step = x.rows * part.experts_per_token, tape.batch.expert_alignment
    return routed if step == 1 else ceil_div(routed + part.experts * step, step) * step


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
    memory(tape, "sigmoid", (gate,), (weight,), (weight,))
    return multiply(tape, out, weight, "weighed shared expert")


def _gather(tape: Tape, x: Tensor, order: Tensor, name: str, width: int) -> Tensor:
    """Index rows: backward needs the index alone."""
    out = tape.tensor(name, order.rows, width, itemsize=x.itemsize)
    index = tape.like(f"{name} index", order)
    memory(tape, name, (x, order), (out, index), (index,))
    return out


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
