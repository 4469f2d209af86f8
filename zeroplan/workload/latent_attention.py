"""Multi-head latent attention on the tape, in the expanded form that training runs.

transformers 5.24, `DeepseekV3Attention.forward`: keys and values are expanded to every head before
the attention kernel, so that the narrow state saves nothing of what autograd keeps.
"""

from dataclasses import replace

from zeroplan.spec.architecture import Norm
from zeroplan.spec.latent_attention import Indexer, LatentAttention
from zeroplan.units import FP32
from zeroplan.workload.attention import rotary
from zeroplan.workload.attention_kernels import FLASH_BACKWARD_RATIO, least_keys, visible_share
from zeroplan.workload.norms import norm
from zeroplan.workload.primitives import linear
from zeroplan.workload.tape import Matmul, Operation, Tape, Tensor

__all__ = ["latent_attention"]

INT32 = 4


def latent_attention(tape: Tape, x: Tensor, part: LatentAttention) -> Tensor:
    """Write one latent attention layer down; x and the result are [tokens, hidden]."""
    q, compressed = _queries(tape, x, part)
    k, v = _keys_and_values(tape, x, part)
    if part.indexer is not None:
        _choose_keys(tape, x, compressed, part.indexer)
    out = _kernel(tape, (q, k, v), part)
    y = linear(tape, out, part.hidden, name="o_proj", role="attention", bias=part.bias)
    tape.hold(x, q, k, v, out)
    return y


def _queries(tape: Tape, x: Tensor, part: LatentAttention) -> tuple[Tensor, Tensor]:
    """Return the queries with their rotated part, and the states that they were expanded from."""
    width = part.heads * part.query_dim
    if part.query_rank is None:
        source, expanded = x, linear(tape, x, width, name="q_proj", role="attention")
    else:
        low = linear(tape, x, part.query_rank, name="q_a_proj", role="attention", bias=part.bias)
        source = _norm(tape, low, part.query_rank, "q_a_layernorm")
        expanded = linear(tape, source, width, name="q_b_proj", role="attention")
    nope, rope = _split(
        tape, expanded, (part.heads * part.nope_dim, part.heads * part.rope_dim), "q"
    )
    return _join(tape, "q", (nope, rotary(tape, rope)), width), source


def _keys_and_values(tape: Tape, x: Tensor, part: LatentAttention) -> tuple[Tensor, Tensor]:
    low = linear(
        tape,
        x,
        part.kv_rank + part.rope_dim,
        name="kv_a_proj_with_mqa",
        role="attention",
        bias=part.bias,
    )
    latent, rope = _split(tape, low, (part.kv_rank, part.rope_dim), "kv")
    normed = _norm(tape, latent, part.kv_rank, "kv_a_layernorm")
    widths = part.heads * part.nope_dim, part.heads * part.value_dim
    expanded = linear(tape, normed, sum(widths), name="kv_b_proj", role="attention")
    nope, v = _split(tape, expanded, widths, "k, v")
    rope = rotary(tape, rope)
    return _join(tape, "k", (nope, rope), part.heads * part.query_dim), v


def _choose_keys(tape: Tape, x: Tensor, compressed: Tensor, part: Indexer) -> None:
    """Score every key by a few light heads and keep the best; nothing here has a gradient.

    transformers 5.24, `DeepseekV32Indexer.forward`, which runs under `no_grad`.
    """
    prefix, first = tape.prefix, len(tape.operations)
    tape.prefix = f"{prefix}indexer."
    q = linear(tape, compressed, part.heads * part.head_dim, name="wq_b", role="attention")
    k = linear(tape, x, part.head_dim, name="wk", role="attention")
    k = norm(tape, k, Norm(kind="layer", width=part.head_dim, bias=True), name="k_norm")
    weights = linear(tape, x, part.heads, name="weights_proj", role="attention")
    seen = tape.batch.sequence_length
    chosen = tape.tensor(
        "chosen keys",
        x.rows,
        least_keys(tape.batch, part.keys),
        itemsize=INT32,
        differentiable=False,
    )
    tape.add(
        Operation(
            name="index scores",
            kernel="attention",
            inputs=(q, k, weights),
            outputs=(chosen,),
            matmuls=(
                Matmul(m=x.rows, n=seen, k=part.head_dim, count=part.heads),
                Matmul(m=x.rows, n=seen, k=part.heads),
            ),
            visible_share=visible_share(seen, seen),
        )
    )
    tape.operations[first:] = [
        replace(operation, saved=(), backward_ratio=0.0) for operation in tape.operations[first:]
    ]
    tape.prefix = prefix


def _kernel(tape: Tape, qkv: tuple[Tensor, Tensor, Tensor], part: LatentAttention) -> Tensor:
    """Softmax(q k^T) v where values are narrower or wider than queries."""
    rows = qkv[0].rows
    out = tape.tensor("attention", rows, part.heads * part.value_dim)
    log_sums = tape.tensor("log-sums", rows, part.heads, itemsize=FP32, differentiable=False)
    keys = tape.batch.sequence_length
    if part.indexer is not None:
        keys = least_keys(tape.batch, part.indexer.keys)
    tape.add(
        Operation(
            name="attention",
            kernel="attention",
            inputs=qkv,
            outputs=(out, log_sums),
            saved=(*qkv, out, log_sums),
            matmuls=(
                Matmul(m=rows, n=keys, k=part.query_dim, count=part.heads),
                Matmul(m=rows, n=part.value_dim, k=keys, count=part.heads),
            ),
            visible_share=visible_share(keys, tape.batch.sequence_length),
            backward_ratio=FLASH_BACKWARD_RATIO,
        )
    )
    return out


def _norm(tape: Tape, x: Tensor, width: int, name: str) -> Tensor:
    return norm(tape, x, Norm(kind="rms", width=width), name=name)


def _split(tape: Tape, x: Tensor, widths: tuple[int, int], name: str) -> tuple[Tensor, Tensor]:
    views = (tape.view(f"{name} 0", x, widths[0]), tape.view(f"{name} 1", x, widths[1]))
    tape.add(Operation(name=f"split {name}", kernel="none", inputs=(x,), outputs=views))
    return views


def _join(tape: Tape, name: str, parts: tuple[Tensor, ...], width: int) -> Tensor:
    """Copy parts side by side into one new storage; one that all heads share is repeated."""
    out = tape.tensor(name, parts[0].rows, width)
    tape.add(Operation(name=name, kernel="memory", inputs=parts, outputs=(out,)))
    return out
