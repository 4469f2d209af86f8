"""Experts in a loop, as the classes of transformers have it, on a routing that fakes can have.

Which tokens chose an expert is data. Here every expert gets the tokens that the prediction gives it;
the operations are those of `Qwen3MoeExperts.forward` (transformers 5.24).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from zeroplan.errors import MissingPartError
from zeroplan.workload.batch import Batch
from zeroplan.workload.expert_loop import shares

__all__ = ["register_loop"]

Forward = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def register_loop(name: str, batch: Batch) -> None:
    """Let transformers know the loop under a name."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS  # noqa: PLC0415  # likewise

    ALL_EXPERTS_FUNCTIONS[name] = _loop(batch)


def _loop(batch: Batch) -> Forward:
    def forward(
        experts: Any, x: torch.Tensor, ids: torch.Tensor, scores: torch.Tensor
    ) -> torch.Tensor:
        if experts.has_bias or experts.is_transposed:
            raise MissingPartError(
                "validate has no loop over experts with biases or [in, out] weights"
            )
        total = torch.zeros_like(x)
        with torch.no_grad():
            mask = functional.one_hot(ids, num_classes=experts.num_experts + 1).permute(2, 1, 0)
        routed = ids.numel()
        for number, rows in enumerate(shares(routed, experts.num_experts, batch.expert_imbalance)):
            token, place = (mask.new_empty(rows) for _ in range(2))
            y = _one(experts, number, x[token]) * scores[token, place, None]
            total.index_add_(0, token, y.to(total.dtype))
        return total

    return forward


def _one(experts: Any, number: int, x: torch.Tensor) -> torch.Tensor:
    if experts.has_gate:
        inner = experts._apply_gate(functional.linear(x, experts.gate_up_proj[number]))
    else:
        inner = experts.act_fn(functional.linear(x, experts.up_proj[number]))
    return functional.linear(inner, experts.down_proj[number])
