"""The optimizers of torch.optim that a spec can name."""

from typing import Any, Final

import torch

from zeroplan.spec.run import TrainingChoice

__all__ = ["optimizer_factory"]

KINDS: Final[dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd-momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


def optimizer_factory(
    training: TrainingChoice,
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """Return the class and its settings; None where nothing is updated."""
    if training.optimizer == "none":
        return None
    kind, settings = KINDS[training.optimizer]
    how = training.optimizer_implementation or "foreach"
    return kind, {"lr": 1e-4, "foreach": how == "foreach", "fused": how == "fused", **settings}
