"""The optimizers of torch.optim that a spec can name."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from zeroplan.schedule.plan import Plan

__all__ = ["Optimizer", "fullest_rank", "make_optimizer"]

DECAY: Final = 0.999
KINDS: Final[dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd-momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adafactor": (torch.optim.Adafactor, {}),
}


class Optimizer:
    """One or several optimizers of torch.optim, stepped one after the other."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        self.followers: list[torch.optim.Optimizer] = []
        self.averages: list[torch.Tensor] = []
        """Running averages of the parameters, where they are kept."""

    def follow(self) -> None:
        """Update each parameter as its gradient arrives."""
        for part in self.parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    alone = type(part)([{**group, "params": [parameter]}])
                    self.followers.append(alone)
                    parameter.register_post_accumulate_grad_hook(
                        lambda _, each=alone: _update(each)
                    )

    def step(self) -> None:
        """Update every parameter."""
        for part in () if self.followers else self.parts:
            part.step()
        if self.averages:
            get_ema_multi_avg_fn(DECAY)(self.averages, list(self._parameters()), 1)

    def keep_averages(self) -> None:
        """Copy the parameters, to average them from here on."""
        self.averages = [each.detach().clone() for each in self._parameters()]

    def _parameters(self) -> Iterator[torch.Tensor]:
        for part in self.parts:
            for group in part.param_groups:
                yield from (each.detach() for each in group["params"])

    def states(self) -> Iterator[torch.Tensor]:
        """Yield what is kept."""
        for part in (*self.parts, *self.followers):
            for state in part.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _update(one: torch.optim.Optimizer) -> None:
    one.step()
    one.zero_grad()


def make_optimizer(
    module: torch.nn.Module, blocks: torch.nn.Module, plan: Plan
) -> Optimizer | None:
    """Return the optimizer of a plan; None where nothing is updated."""
    if plan.training.optimizer == "none":
        return None
    if plan.training.optimizer == "muon":
        return _muon(module, blocks, plan)
    kind, settings = KINDS[plan.training.optimizer]
    options = settings | _options(plan, kind)
    if plan.row.framework != "torch-zero1":
        return Optimizer(kind(_trained(module), **options))
    return Optimizer(_redundancy_free(module, plan))


def _trained(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _options(plan: Plan, kind: Callable[..., object]) -> dict[str, Any]:
    how = plan.dtypes.implementation
    fused = {} if kind is torch.optim.Adafactor else {"fused": how == "fused"}
    return {"lr": 1e-4, "foreach": how == "foreach", **fused}


def _muon(module: torch.nn.Module, blocks: torch.nn.Module, plan: Plan) -> Optimizer:
    """Let Muon have the blocks' matrices and AdamW the rest."""
    matrices = [each for each in _trained(blocks) if each.ndim == 2]  # noqa: PLR2004
    known = {id(each) for each in matrices}
    rest: Iterable[torch.nn.Parameter] = [p for p in _trained(module) if id(p) not in known]
    adamw = torch.optim.AdamW(rest, **_options(plan, torch.optim.AdamW))
    return Optimizer(torch.optim.Muon(matrices), adamw)


def _redundancy_free(module: torch.nn.Module, plan: Plan) -> ZeroRedundancyOptimizer:
    kind, settings = KINDS[plan.training.optimizer]
    views = plan.choice.parameters_as_bucket_view
    options = settings | _options(plan, kind)
    return ZeroRedundancyOptimizer(
        _trained(module), kind, parameters_as_bucket_view=views, **options
    )


def fullest_rank(module: torch.nn.Module, plan: Plan) -> int:
    """Return the rank with the largest states: ZeroRedundancyOptimizer deals whole parameters."""
    if plan.row.framework != "torch-zero1" or plan.training.optimizer == "none":
        return 0
    shares = [
        sum(parameter.numel() for group in groups for parameter in group["params"])
        for groups in _redundancy_free(module, plan)._partition_parameters()  # no public name
    ]
    return shares.index(max(shares))
