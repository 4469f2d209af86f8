"""The head and the loss on the tape, by variant (bytes in units of tokens x vocabulary)."""

from zeroplan.spec.architecture import Head
from zeroplan.workload.batch import Batch
from zeroplan.workload.primitives import cast, linear
from zeroplan.workload.tape import Operation, Tape, Tensor

__all__ = ["head_and_loss"]

FP32 = 4
EMBEDDING = "embedding"
"""Name under which a tied head finds the token embedding."""


def head_and_loss(tape: Tape, x: Tensor, head: Head, batch: Batch) -> Tensor:
    """Project to the vocabulary and take the cross-entropy.

    Fp32 logits: the logits in the compute dtype are cast (and dropped), log-softmax keeps its
    output (4 bytes), backward holds that, the gradient of the loss and its own gradient: 12.
    """
    tape.purpose = "loss"
    logits = linear(
        tape,
        x,
        head.rows,
        name="lm_head",
        role="head",
        bias=head.bias,
        tied_to=EMBEDDING if head.tied else None,
    )
    widens = batch.loss == "fp32-logits" or tape.autocast
    wide = cast(tape, logits, FP32, "fp32 logits") if widens else logits
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
