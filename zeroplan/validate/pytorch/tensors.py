"""The tensors in what an operation takes or returns."""

from collections.abc import Iterator

import torch

__all__ = ["tensors_in"]


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield every tensor of a tensor, a list or a tuple, all the way down."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
