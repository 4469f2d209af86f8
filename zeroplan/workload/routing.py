"""A router on the tape: scores of the experts, of which each token keeps the best.

Source: the router classes of transformers 5.24 (`Qwen3MoeTopKRouter`, `MixtralTopKRouter`,
`DeepseekV3TopkRouter`, `GptOssTopKRouter`). What picks experts only (groups, a correction bias)
leaves nothing behind.
"""

from zeroplan.records import dataclass
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.units import FP32, INT64, Size
from zeroplan.workload.primitives import cast, elementwise, linear, scale
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["Routing", "indices", "memory", "route"]


@dataclass(frozen=True, slots=True)
class Routing:
    """What each token's experts are and what they weigh, [tokens, experts per token]."""

    scores: Tensor
    ids: Tensor


def route(tape: Tape, x: Tensor, part: MixtureOfExperts) -> Routing:
    """Score the experts and keep the best of each token."""
    logits = _logits(tape, x, part)
    if part.router.scoring.startswith("chosen"):
        return _of_chosen(tape, logits, part)
    probabilities = tape.tensor("router probabilities", x.rows, part.experts, itemsize=FP32)
    memory(tape, "router scores", (logits,), (probabilities,), (probabilities,))
    kept = tape.tensor("scores fp32", x.rows, part.experts_per_token, itemsize=FP32)
    ids = indices(tape, "expert ids", x.rows, part.experts_per_token)
    memory(tape, "top k", (probabilities,), (kept, ids), (ids,))
    if part.router.normalised:
        kept = _normalised(tape, kept)
    if part.router.scaled:
        kept = scale(tape, kept, "scaled scores")
    return Routing(kept if part.router.wide_scores else cast(tape, kept, x.itemsize, "scores"), ids)


def _logits(tape: Tape, x: Tensor, part: MixtureOfExperts) -> Tensor:
    """Multiply in the compute dtype, or by an fp32 copy of the weight; autocast narrows that."""
    router = part.router
    if not router.wide or tape.batch.autocast or tape.itemsize == FP32:
        return linear(tape, x, part.experts, name="router", role="router", bias=router.bias)
    wide = cast(tape, x, FP32, "router input fp32")
    shape = (part.experts, x.width)
    weight = Parameter(name=f"{tape.prefix}router.weight", shape=shape, role="router", matmul=True)
    copy = tape.tensor("router weight fp32", part.experts, x.width, itemsize=FP32)
    cost = Operation(name=copy.name, kernel="memory", outputs=(copy,), parameters=(weight,))
    tape.add(cost)
    logits = tape.tensor("router", x.rows, part.experts, itemsize=FP32)
    tape.add(
        Operation(
            name="router",
            kernel="matmul",
            inputs=(wide, copy),
            outputs=(logits,),
            saved=(wide, copy),
            matmuls=(Matmul(m=x.rows, n=part.experts, k=x.width),),
            module=f"{tape.prefix}router",
            exchanges=True,
        )
    )
    return logits


def _of_chosen(tape: Tape, logits: Tensor, part: MixtureOfExperts) -> Routing:
    """Take the softmax of the best logits alone; it keeps its result."""
    chosen = part.experts_per_token
    if part.router.scoring == "chosen-fp32":
        logits = cast(tape, logits, FP32, "router fp32")
    ids = indices(tape, "expert ids", logits.rows, chosen)
    best = tape.tensor("best logits", logits.rows, chosen, itemsize=logits.itemsize)
    memory(tape, "top k", (logits,), (best, ids), (ids,))
    scores = tape.like("softmax of the best", best)
    memory(tape, "softmax of the best", (best,), (scores,), (scores,))
    return Routing(cast(tape, scores, tape.itemsize, "scores"), ids)


def _normalised(tape: Tape, kept: Tensor) -> Tensor:
    """Divide by their sum in place: autograd keeps a copy from before, and the sum."""
    total = tape.tensor("sum of scores", kept.rows, 1, itemsize=FP32)
    memory(tape, "sum of scores", (kept,), (total,))
    return elementwise(tape, "normalised scores", (kept, total), saved=(kept, total))


def memory(
    tape: Tape,
    name: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    saved: tuple[Tensor, ...] = (),
) -> None:
    """Add an operation that memory traffic bounds."""
    tape.add(Operation(name=name, kernel="memory", inputs=inputs, outputs=outputs, saved=saved))


def indices(tape: Tape, name: str, rows: Size, width: int = 1) -> Tensor:
    """Return 64-bit indices, which have no gradient."""
    return tape.tensor(name, rows, width, itemsize=INT64, differentiable=False)
