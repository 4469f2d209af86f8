"""The head and the loss on the tape, by variant (bytes in units of tokens x vocabulary)."""

from typing import Final

from zeroplan.spec.architecture import Head
from zeroplan.spec.run import WITHOUT_LOGITS
from zeroplan.units import FP32, Size, ceil_div, maximum, minimum, power_of_two, round_up
from zeroplan.workload.batch import Batch
from zeroplan.workload.primitives import cast, linear
from zeroplan.workload.tape import Matmul, Operation, Parameter, Tape, Tensor

__all__ = ["head_and_loss", "kept_logits_bytes"]

EMBEDDING: Final = "embedding"
"""Name under which a tied head finds the token embedding."""
CHUNKS: Final = 8
"""Chunks of a chunked loss (torchtitan's and torchtune's default)."""


def head_and_loss(tape: Tape, x: Tensor, head: Head) -> Tensor:
    """Project to the vocabulary and take the cross-entropy."""
    tape.purpose = "loss"
    if tape.batch.loss == "compiled":
        return _compiled(tape, x, head)
    if tape.batch.loss == "chunked":
        return _chunked(tape, x, head)
    if tape.batch.loss == "fused-linear":
        return _fused_linear(tape, x, head)
    return _whole(tape, x, head)


def kept_logits_bytes(head: Head | None, batch: Batch) -> Size:
    """Return what a training loop holds that keeps the logits; some losses have none. [B]"""
    if head is None or not batch.keep_logits or batch.loss in WITHOUT_LOGITS:
        return 0
    rows = batch.sequences if head.pooled else batch.tokens
    return round_up(rows * head.rows * (FP32 if batch.widens_logits else batch.itemsize))


def _whole(tape: Tape, x: Tensor, head: Head) -> Tensor:
    """All logits at once, which the caller keeps until the loss is there.

    Fp32 logits: 2 bytes of logits are cast to 4, log-softmax keeps its output of 4; backward holds
    that, the gradient of the loss and its own gradient: 12. In the model's dtype: half of it.
    """
    logits = _logits(tape, x, head)
    wide = cast(tape, logits, FP32, "fp32 logits") if tape.batch.widens_logits else logits
    log_probabilities = tape.like("log-probabilities", wide)
    tape.add(
        Operation(
            name="log-softmax",
            kernel="memory",
            inputs=(wide,),
            outputs=(log_probabilities,),
            saved=(log_probabilities,),
        )
    )
    loss = _negative_log_likelihood(tape, log_probabilities)
    tape.hold(logits, wide)
    return loss


def _logits(tape: Tape, x: Tensor, head: Head) -> Tensor:
    return linear(
        tape,
        x,
        head.rows,
        name="lm_head",
        role="head",
        bias=head.bias,
        tied_to=EMBEDDING if head.tied else None,
    )


def _compiled(tape: Tape, x: Tensor, head: Head) -> Tensor:
    """Logits in the compute dtype and a cross-entropy in fp32 that Inductor compiled.

    It keeps the logits themselves and two fp32 numbers a row, their maximum and the logarithm of
    the sum. No fp32 logits exist: backward reads the logits and writes their gradient in their own
    dtype, beside one fp32 number a row (code that torch 2.13 generates for
    `cross_entropy(logits.float(), labels)`).
    """
    logits = _logits(tape, x, head)
    rows = (
        tape.tensor("row maxima", x.rows, 1, itemsize=FP32, differentiable=False),
        tape.tensor("row log-sums", x.rows, 1, itemsize=FP32, differentiable=False),
    )
    total_weight = tape.tensor("total weight", 1, 1, itemsize=FP32, differentiable=False)
    loss = tape.tensor("loss", 1, 1, itemsize=FP32)
    tape.add(
        Operation(
            name="compiled cross-entropy",
            kernel="memory",
            inputs=(logits,),
            outputs=(loss, *rows, total_weight),
            saved=(logits, *rows, total_weight),
            backward_temporaries=(x.rows * FP32,),
        )
    )
    tape.hold(logits)
    return loss


def _negative_log_likelihood(tape: Tape, log_probabilities: Tensor) -> Tensor:
    """Pick each target's log-probability: keeps its input and a total weight of one element."""
    size = log_probabilities.itemsize
    total_weight = tape.tensor("total weight", 1, 1, itemsize=size, differentiable=False)
    loss = tape.tensor("loss", 1, 1, itemsize=size)
    tape.add(
        Operation(
            name="loss",
            kernel="memory",
            inputs=(log_probabilities,),
            outputs=(loss, total_weight),
            saved=(log_probabilities, total_weight),
        )
    )
    return loss


def _chunked(tape: Tape, x: Tensor, head: Head) -> Tensor:
    """Logits chunk by chunk, each checkpointed: nothing but the input outlives a chunk.

    Forward has fp32 logits and log-probabilities of one chunk, backward a third such tensor, or
    the gradient of the logits beside the chunk's own gradient of the weight.
    """
    chunk = ceil_div(x.rows, CHUNKS) * head.rows
    weight = _weight(head)
    trained = tape.batch.trains_head
    fresh = weight.elements * x.itemsize * trained
    at_loss = 3 * chunk * FP32
    at_weight = chunk * x.itemsize + fresh
    product = Matmul(m=x.rows, n=head.rows, k=x.width)
    loss = tape.tensor("loss", 1, 1, itemsize=FP32)
    tape.add(
        Operation(
            name="chunked head and loss",
            kernel="matmul",
            inputs=(x,),
            outputs=(loss,),
            parameters=(weight,),
            saved=(x,),
            forward_temporaries=(2 * chunk * FP32,),
            backward_temporaries=(maximum(at_loss, at_weight),),
            matmuls=(product,),
            backward_ratio=3.0,  # each chunk's logits are computed again
            module="lm_head",
        )
    )
    return loss


def _fused_linear(tape: Tape, x: Tensor, head: Head) -> Tensor:
    """Liger's kernel: the gradients of input and weight are computed in forward and kept.

    Rows per chunk c = the power of two above T / ceil(V / h); a chunk has its logits, the product
    that makes its weight gradient, and that product in fp32
    (liger_kernel/ops/fused_linear_cross_entropy.py, Liger-Kernel ead96b6).
    """
    weight = _weight(head)
    rows = power_of_two(ceil_div(x.rows, ceil_div(head.rows, x.width)))
    chunk = minimum(rows, x.rows) * head.rows * x.itemsize
    trained = tape.batch.trains_head
    kept = [tape.tensor("input gradient", x.rows, x.width, differentiable=False)]
    if trained:
        gradient = tape.tensor("weight gradient", head.rows, x.width, differentiable=False)
        kept.append(gradient)
    loss = tape.tensor("loss", 1, 1, itemsize=FP32)
    tape.add(
        Operation(
            name="fused linear cross-entropy",
            kernel="matmul",
            inputs=(x,),
            outputs=(loss, *kept),
            parameters=(weight,),
            saved=tuple(kept),
            saved_gradients=True,
            forward_temporaries=(
                chunk,
                weight.elements * x.itemsize * trained,
                weight.elements * FP32 * trained,
            ),
            matmuls=(2 + trained) * (Matmul(m=x.rows, n=head.rows, k=x.width),),
            backward_ratio=0.0,
            module="lm_head",
        )
    )
    return loss


def _weight(head: Head) -> Parameter:
    return Parameter(
        name="lm_head.weight",
        shape=(head.rows, head.hidden),
        role="head",
        tied_to=EMBEDDING if head.tied else None,
        matmul=True,
    )
