"""Attention: projections, positions, a fused kernel or scores in memory."""

import torch
from torch import nn
from torch.nn import functional

from zeroplan.errors import MissingPartError
from zeroplan.spec import architecture
from zeroplan.validate.pytorch.layers import Linear, Norm, dropped
from zeroplan.workload.batch import Batch

__all__ = ["Attention", "rotary_tables"]


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention."""

    def __init__(self, part: architecture.Attention, batch: Batch) -> None:
        super().__init__()
        _refuse(part)
        self.part, self.batch = part, batch
        wide, narrow = part.heads * part.head_dim, part.kv_heads * part.head_dim
        key_bias = part.qkv_bias if part.key_bias is None else part.key_bias
        if part.fused_qkv:
            self.qkv_proj = Linear(
                part.hidden, wide + 2 * narrow, bias=part.qkv_bias, transposed=part.transposed
            )
        else:
            self.q_proj = Linear(part.hidden, wide, bias=part.qkv_bias)
            self.k_proj = Linear(part.hidden, narrow, bias=key_bias)
            self.v_proj = Linear(part.hidden, narrow, bias=part.qkv_bias)
        eager = batch.norm == "eager"
        self.q_norm = Norm(part.query_norm, eager=eager) if part.query_norm else None
        self.k_norm = Norm(part.key_norm, eager=eager) if part.key_norm else None
        self.o_proj = Linear(wide, part.hidden, bias=part.output_bias, transposed=part.transposed)

    def forward(self, x: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Attend; the result has the shape of x."""
        q, k, v = self._heads(x)
        if self.part.position == "rope":
            width = self.part.rotary_dim
            if self.batch.rope == "complex":  # one statement replaces both
                q, k = (_rotated(each, tables, width) for each in (q, k))
            else:
                q = _rotated(q, tables, width)
                k = _rotated(k, tables, width)
        out = self._attend(q, k, v)
        y = self.o_proj(out.transpose(1, 2).reshape(*x.shape[:-1], -1))
        return dropped(y) if self.part.dropout else y

    def _heads(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return q, k and v as [sequences, heads, tokens, head_dim]."""
        part = self.part
        if part.fused_qkv:
            wide, narrow = part.heads * part.head_dim, part.kv_heads * part.head_dim
            q, k, v = self.qkv_proj(x).split((wide, narrow, narrow), dim=-1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k = self._normed(q, self.q_norm), self._normed(k, self.k_norm)
        return tuple(
            each.reshape(*x.shape[:-1], -1, part.head_dim).transpose(1, 2) for each in (q, k, v)
        )

    def _normed(self, x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
        """Normalise each head, or the whole width where the weight spans it (OLMo 2)."""
        if norm is None:
            return x
        whole = norm.weight is not None and norm.weight.shape[-1] == x.shape[-1]
        return norm(x if whole else x.view(*x.shape[:-1], -1, self.part.head_dim))

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        grouped = self.part.kv_heads != self.part.heads
        if grouped and self.batch.attention != "flash":
            k, v = (_repeated(each, self.part.heads) for each in (k, v))
        if self.batch.attention == "math":
            return _materialised(q, k, v, causal=self.part.causal)
        return functional.scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal=self.part.causal,
            enable_gqa=grouped and self.batch.attention == "flash",
        )


def rotary_tables(batch: Batch, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Return cosines and sines in the compute dtype, or one table of complex numbers."""
    length = batch.sequence_length
    if batch.rope == "complex":
        return (torch.empty(length, width // 2, dtype=torch.complex64),)
    return tuple(torch.empty(length, width, dtype=dtype) for _ in range(2))


def _rotated(x: torch.Tensor, tables: tuple[torch.Tensor, ...], width: int | None) -> torch.Tensor:
    """Rotate a head, or its first `width` elements (GPT-NeoX, Phi)."""
    if width is None:
        return _turned(x, tables)
    return torch.cat((_turned(x[..., :width], tables), x[..., width:]), dim=-1)


def _turned(x: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> torch.Tensor:
    if len(tables) == 1:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * tables[0]).flatten(3).type_as(x)
    cosine, sine = tables
    return (x * cosine + _half_turn(x) * sine).to(x.dtype)


def _half_turn(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _repeated(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Copy each key-value head once for every query head that reads it."""
    b, groups, s, d = x.shape
    return x[:, :, None].expand(b, groups, heads // groups, s, d).reshape(b, heads, s, d)


def _materialised(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> torch.Tensor:
    """Softmax of masked scores, times v, with every step in memory."""
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(functional.softmax(scores, dim=-1), v)


def _refuse(part: architecture.Attention) -> None:
    extras = {
        "attention sinks": part.sinks,
        "gated attention": part.gated,
        "cross-attention": part.memory_width is not None,
        "relative positions": part.relative_buckets > 0 or part.position == "relative",
        "ALiBi": part.position == "alibi",
    }
    for name, present in extras.items():
        if present:
            raise MissingPartError(f"zeroplan's own module has no {name}")
