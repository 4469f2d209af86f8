"""Softmax(q k^T) v on the tape: one fused kernel, or the scores in memory."""

from zeroplan.spec.architecture import Attention
from zeroplan.units import FP32, Size, minimum
from zeroplan.workload.batch import Batch
from zeroplan.workload.position_bias import bias_gradients, score_bias
from zeroplan.workload.primitives import dropout, elementwise, scale
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["FLASH_BACKWARD_RATIO", "attention_kernel", "least_keys", "visible_share"]

FLASH_BACKWARD_RATIO = 2.5
"""Five products against two: flash attention's backward computes the scores again
(Dao, FlashAttention-2, arXiv 2307.08691, section 4.1)."""


def attention_kernel(tape: Tape, q: Tensor, k: Tensor, v: Tensor, part: Attention) -> Tensor:
    """Attend: by a fused kernel, or with the scores in memory."""
    if tape.batch.attention != "flash" and part.kv_heads != part.heads:
        k, v = (_expanded(tape, t, part) for t in (k, v))
    if tape.batch.attention == "math":
        return _materialised(tape, q, k, v, part)
    return _fused(tape, q, k, v, part)


def _fused(tape: Tape, q: Tensor, k: Tensor, v: Tensor, part: Attention) -> Tensor:
    """Flash attention keeps q, k, v, its output and one fp32 log-sum per row and head.

    A kernel that adds a bias to the scores keeps that as well.
    """
    bias = score_bias(tape, part)
    out = tape.tensor("attention", q.rows, part.heads * part.head_dim)
    log_sums = tape.tensor("log-sums", q.rows, part.heads, itemsize=FP32, differentiable=False)
    scores, weighted = _products(q, part, tape.batch)
    tape.add(
        Operation(
            name="attention",
            kernel="attention",
            inputs=(q, k, v, *bias),
            outputs=(out, log_sums),
            parameters=_score_parameters(tape, part),
            saved=(q, k, v, *bias, out, log_sums),
            backward_temporaries=bias_gradients(tape, part),
            matmuls=(scores, weighted),
            visible_share=_visible(scores.n, part, tape.batch),
            backward_ratio=FLASH_BACKWARD_RATIO,
        )
    )
    return out


def _materialised(tape: Tape, q: Tensor, k: Tensor, v: Tensor, part: Attention) -> Tensor:
    """Keep the [queries, keys] probabilities and a boolean mask; the scores pass by.

    A batched product reads its operands head by head: with more than one sequence that takes
    copies (keys and values repeated to all heads have been copied already), and the output is
    always copied back to [tokens, heads x head_dim]. Keys, values and the mask are local variables
    to the end.
    """
    given = k, v
    if not (isinstance(tape.batch.sequences, int) and tape.batch.sequences == 1):
        q = elementwise(tape, "q by head", (q,))
        if part.kv_heads == part.heads:
            k, v = (elementwise(tape, f"{t.name} by head", (t,)) for t in (k, v))
    scores, weighted = _products(q, part, tape.batch)
    share = _visible(scores.n, part, tape.batch)
    raw = tape.tensor("scores", q.rows * part.heads, tape.batch.sequence_length)
    tape.add(
        Operation(
            name="scores",
            kernel="scores",
            inputs=(q, k),
            outputs=(raw,),
            parameters=_score_parameters(tape, part),
            saved=(q, k),
            matmuls=(scores,),
            visible_share=share,
            exchanges=True,
        )
    )
    masked, *mask = _masked(tape, scale(tape, raw, "scaled scores"), part)
    weights = _probabilities(tape, masked, part)
    by_head = tape.tensor("attention by head", q.rows, part.heads * part.head_dim)
    tape.add(
        Operation(
            name="attention",
            kernel="scores",
            inputs=(weights, v),
            outputs=(by_head,),
            saved=(weights, v),
            matmuls=(weighted,),
            visible_share=share,
            exchanges=True,
        )
    )
    tape.hold(*given, masked, *mask)
    return elementwise(tape, "attention", (by_head,))


def _probabilities(tape: Tape, scores: Tensor, part: Attention) -> Tensor:
    """Take the softmax, which keeps its output, and drop some of it where the model does."""
    weights = tape.like("probabilities", scores)
    tape.add(
        Operation(
            name="softmax", kernel="memory", inputs=(scores,), outputs=(weights,), saved=(weights,)
        )
    )
    return dropout(tape, weights, "probability dropout") if part.dropout else weights


def _masked(tape: Tape, scores: Tensor, part: Attention) -> tuple[Tensor, ...]:
    """Mask the future; return the scores, and the mask that autograd keeps, a byte per pair."""
    if part.position == "relative":
        scores = scale(tape, scores, "biased scores")  # a sum, as is that with the mask
    if not part.causal:
        return (scores,)
    length = tape.batch.sequence_length
    mask = tape.tensor("mask", length, length, itemsize=1, differentiable=False)
    masked = tape.like("masked scores", scores)
    tape.add(
        Operation(
            name="mask",
            kernel="memory",
            inputs=(scores,),
            outputs=(masked, mask),
            saved=(mask,),
            forward_temporaries=(length * length,),
        )
    )
    return masked, mask


def _products(q: Tensor, part: Attention, batch: Batch) -> tuple[Matmul, Matmul]:
    """Return q k^T, and probabilities times v, for every head."""
    if part.memory_positions is not None:
        keys: Size = part.memory_positions
    elif part.window is not None:
        keys = least_keys(batch, part.window)
    else:
        keys = batch.sequence_length
    d, heads = part.head_dim, part.heads
    return Matmul(m=q.rows, n=keys, k=d, count=heads), Matmul(m=q.rows, n=d, k=keys, count=heads)


def _score_parameters(tape: Tape, part: Attention) -> tuple[Parameter, ...]:
    """Return what is added to the scores: a logit per head, a table of relative positions."""
    shapes = {
        "sinks": (part.heads,) if part.sinks else None,
        "relative_attention_bias.weight": (part.relative_buckets, part.heads)
        if part.relative_buckets
        else None,
    }
    return tuple(
        Parameter(name=f"{tape.prefix}{name}", shape=shape, role="attention")
        for name, shape in shapes.items()
        if shape is not None
    )


def _expanded(tape: Tape, x: Tensor, part: Attention) -> Tensor:
    """Repeat to all heads: a fused kernel reads a single head in place, its stride being 0."""
    name, width = f"{x.name} expanded", part.heads * part.head_dim
    if part.kv_heads == 1 and tape.batch.attention != "math":
        alias = tape.view(name, x, width)
        tape.add(Operation(name=name, kernel="none", inputs=(x,), outputs=(alias,)))
        return alias
    wide = tape.tensor(name, x.rows, width)
    tape.add(Operation(name=name, kernel="memory", inputs=(x,), outputs=(wide,)))
    return wide


def _visible(keys: Size, part: Attention, batch: Batch) -> Size:
    return visible_share(keys, batch.sequence_length) if part.causal else 1.0


def least_keys(batch: Batch, window: int) -> Size:
    """Return the keys that a query can see: the window, or the whole of a shorter sequence."""
    return minimum(batch.sequence_length, window)


def visible_share(keys: Size, sequence_length: Size) -> Size:
    """Share of a [sequence, keys] score matrix that a causal (sliding) mask leaves.

    A query sees at most `keys` keys; the first `keys` queries see half of them on average.
    """
    return 1.0 - keys / (2.0 * sequence_length)
