"""The optimizers of torch.optim that a spec can name."""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from zeroplan.schedule.plan import Plan

__all__ = ["fullest_rank", "make_optimizer"]

KINDS: Final[dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd-momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


def make_optimizer(
    parameters: Iterator[torch.nn.Parameter], plan: Plan
) -> torch.optim.Optimizer | None:
    """Return the optimizer of a plan; None where nothing is updated."""
    if plan.training.optimizer == "none":
        return None
    kind, settings = KINDS[plan.training.optimizer]
    how = plan.training.optimizer_implementation or "foreach"
    options = {"lr": 1e-4, "foreach": how == "foreach", "fused": how == "fused", **settings}
    if plan.row.framework != "torch-zero1":
        return kind(parameters, **options)
    views = plan.choice.parameters_as_bucket_view
    return ZeroRedundancyOptimizer(parameters, kind, parameters_as_bucket_view=views, **options)


def fullest_rank(module: torch.nn.Module, plan: Plan) -> int:
    """Return the rank with the largest states: ZeroRedundancyOptimizer deals whole parameters."""
    optimizer = make_optimizer(module.parameters(), plan)
    if not isinstance(optimizer, ZeroRedundancyOptimizer):
        return 0
    shares = [
        sum(parameter.numel() for group in groups for parameter in group["params"])
        for groups in optimizer._partition_parameters()  # no public name tells it
    ]
    return shares.index(max(shares))
