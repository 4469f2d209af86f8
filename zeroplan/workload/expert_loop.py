"""Experts one after the other, each on the tokens that chose it.

transformers 5.24, `Qwen3MoeExperts.forward` (`experts_implementation="eager"`) and most classes before
version 5: what is summed up is kept as well, and the gradient of one expert's weight arrives as a
stacked tensor that is zero elsewhere (`select_backward`).
"""

from collections.abc import Iterator

from zeroplan.records import dataclass, replace
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.units import INT64, Size, ceil_div, floor, minimum
from zeroplan.workload.experts import activated, expert_weights
from zeroplan.workload.primitives import cast, weigh
from zeroplan.workload.routing import Routing, indices, memory
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["expert_loop", "shares"]


@dataclass(frozen=True, slots=True)
class _Weights:
    """What one expert's product does to a stored weight."""

    parameters: tuple[Parameter, ...]
    """Those whose gradient starts here: backward meets the last expert first."""
    shares: tuple[Parameter, ...]
    """Those of which this is a part, where another expert's does."""
    elements: int
    """Of one expert. [elements]"""
    zeros: tuple[Size, ...] = ()
    """Gradients as large as the stack, which are added to the first. [B]"""


@dataclass(frozen=True, slots=True)
class _Expert:
    rows: Size
    """Tokens that chose it. [count]"""
    inward: _Weights
    outward: _Weights


def expert_loop(tape: Tape, x: Tensor, routing: Routing, part: MixtureOfExperts) -> Tensor:
    """Write the loop down; x and the result are [tokens, hidden]."""
    out = tape.tensor("mixture", x.rows, part.hidden)
    choices = part.experts_per_token * (part.experts + 1)
    mask = tape.tensor("expert mask", x.rows, choices, itemsize=INT64, differentiable=False)
    memory(tape, "expert mask", (routing.ids,), (out, mask))
    for expert in _experts(tape, x, part):
        out = _expert(tape, (x, mask, routing.scores), out, part, expert)
    tape.hold(mask)
    return out


def _experts(tape: Tape, x: Tensor, part: MixtureOfExperts) -> Iterator[_Expert]:
    inward, outward = expert_weights(tape, part)
    routed = x.rows * part.experts_per_token
    for index, rows in enumerate(shares(routed, part.experts, tape.batch.expert_imbalance)):
        own = (_of_expert(tape, stored, part, index) for stored in (inward, outward))
        yield _Expert(rows, *own)


def _of_expert(
    tape: Tape, stored: tuple[Parameter, ...], part: MixtureOfExperts, index: int
) -> _Weights:
    elements = sum(each.elements for each in stored) // part.experts
    if part.storage == "modules":
        own = len(stored) // part.experts
        return _Weights(stored[index * own : (index + 1) * own], (), elements)
    size = tape.batch.parameter_itemsize
    one = elements * size
    if index + 1 == part.experts:
        return _Weights(stored, (), elements, (one,))
    return _Weights((), stored, elements, (one, *(each.elements * size for each in stored)))


def shares(routed: Size, experts: int, imbalance: float) -> Iterator[Size]:
    """Yield the tokens of each expert: the fullest first, the others share what it leaves."""
    fullest = minimum(floor(ceil_div(routed, experts) * imbalance), routed)
    yield fullest
    if experts > 1:
        even = (routed - fullest) // (experts - 1)
        yield from (even for _ in range(experts - 2))
        yield routed - fullest - even * (experts - 2)


def _expert(
    tape: Tape,
    given: tuple[Tensor, Tensor, Tensor],
    total: Tensor,
    part: MixtureOfExperts,
    expert: _Expert,
) -> Tensor:
    """Gather one expert's tokens, run it, weigh the result and add it to the total."""
    x, mask, scores = given
    token, place = (indices(tape, name, expert.rows) for name in ("token index", "place index"))
    memory(tape, "where", (mask,), (token, place))
    current = _picked(tape, x, (token,), "gathered tokens")
    columns = 2 * part.width if part.gated else part.width
    inner = _product(tape, current, columns, "experts up", expert.inward)
    inner = activated(tape, inner, part)
    out = _product(tape, inner, part.hidden, "experts down", expert.outward)
    weight = _picked(tape, scores, (token, place), "gathered scores", width=1)
    weighed = cast(tape, weigh(tape, out, weight, "weighed"), x.itemsize, "narrow weighed")
    return _added(tape, total, weighed, token)


def _picked(
    tape: Tape, x: Tensor, by: tuple[Tensor, ...], name: str, width: int | None = None
) -> Tensor:
    """Index rows: backward needs the indices alone."""
    out = tape.tensor(name, by[0].rows, width or x.width, itemsize=x.itemsize)
    memory(tape, name, (x, *by), (out,), by)
    return out


def _product(tape: Tape, x: Tensor, width: int, name: str, weights: _Weights) -> Tensor:
    """Multiply by one expert's weight, of which autocast casts a copy that backward needs.

    One that no token chose is not run: nobody reads its weight.
    """
    x = cast(tape, x, tape.itemsize, f"{name} input")
    copies: tuple[Tensor, ...] = ()
    if tape.batch.autocast:
        copies = (replace(tape.tensor(f"{name} copy", weights.elements, 1), differentiable=False),)
        memory(tape, f"{name} copy", (), copies)
    out = tape.tensor(name, x.rows, width)
    tape.add(
        Operation(
            name=name,
            kernel="matmul",
            inputs=(x, *copies),
            outputs=(out,),
            parameters=weights.parameters,
            shares=weights.shares,
            saved=(x, *copies),
            backward_temporaries=weights.zeros,
            matmuls=(Matmul(m=x.rows, n=width, k=x.width, count=minimum(1, x.rows)),),
            module=f"{tape.prefix}experts",
            exchanges=True,
        )
    )
    return out


def _added(tape: Tape, total: Tensor, weighed: Tensor, token: Tensor) -> Tensor:
    """Add to the total in place: `index_add_` keeps what it adds, for its shape alone."""
    spread = tape.view("spread", total, total.width)
    memory(tape, "spread", (weighed, token), (spread,), (token, weighed))
    out = tape.view("mixture so far", total, total.width)
    tape.add(
        Operation(
            name="add to mixture",
            kernel="none",
            inputs=(total, spread),
            outputs=(out,),
            passes_gradient=True,
        )
    )
    return out
