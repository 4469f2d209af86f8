"""Activation checkpointing as torchtitan and transformers apply it: around whole blocks."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from zeroplan.spec.run import TrainingChoice

__all__ = ["checkpoint_blocks"]

aten = torch.ops.aten
ATTENTION: Final = (
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
)
MATMULS: Final = (aten.mm.default, aten.addmm.default)


def checkpoint_blocks(stacks: tuple[nn.ModuleList, ...], training: TrainingChoice) -> None:
    """Wrap the blocks that are checkpointed.

    The random state is not stashed: on a GPU that copy lives on the host.
    """
    selective = training.activation_checkpointing == "selective"
    every = 1 if selective else training.checkpoint_every
    reentrant = training.checkpoint_reentrant and not selective
    extra = {"context_fn": _selective_contexts} if selective else {}
    kind = CheckpointImpl.REENTRANT if reentrant else CheckpointImpl.NO_REENTRANT
    places = [(blocks, index) for blocks in stacks for index in range(len(blocks))]
    for number, (blocks, index) in enumerate(places, 1):
        if every and number % every == 0:
            wrapped = checkpoint_wrapper(
                blocks[index], checkpoint_impl=kind, preserve_rng_state=False, **extra
            )
            blocks[index] = _Offloaded(wrapped) if training.offload_activations else wrapped


class _Offloaded(nn.Module):
    """Keeps on the host what a checkpoint saves, as PyTorch's `OffloadWrapper` does.

    That one pins, for which there must be a GPU.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block."""
        with save_on_cpu(pin_memory=False):
            return self.block(*args, **kwargs)


def _selective_contexts() -> Any:
    """Keep attention outputs and every second matmul (torchtitan's rule per operation)."""
    seen: Counter[bool] = Counter()
    return create_selective_checkpoint_contexts(partial(_policy, seen))


def _policy(
    seen: Counter[bool], context: Any, operator: Callable[..., Any], *_: Any, **__: Any
) -> CheckpointPolicy:
    if operator in MATMULS:
        seen[context.is_recompute] += 1
    odd = operator in MATMULS and seen[context.is_recompute] % 2 == 1
    kept = odd or operator in ATTENTION
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
