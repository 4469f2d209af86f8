"""What must surround a step of a class of transformers on fake tensors."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from zeroplan.validate.pytorch.kernels import fused_attention, one_byte_dropout, replaced

__all__ = ["as_on_cuda"]

CHECKS: Final = "TRANSFORMERS_DISABLE_TORCH_CHECK"


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Run attention and dropout as CUDA does, on sequences of one document without padding.

    transformers looks at positions and padding, which fakes have not; without an answer it makes a
    mask, and attention then runs without the causal kernel and without grouped queries
    (`find_packed_sequence_indices`, `_ignore_causal_mask_sdpa` in transformers/masking_utils.py, 5.24).
    """
    from transformers import masking_utils  # noqa: PLC0415  # zeroplan's own module does without

    with ExitStack() as stack:
        stack.enter_context(fused_attention())
        stack.enter_context(one_byte_dropout())
        stack.enter_context(replaced(masking_utils, "find_packed_sequence_indices", _unpacked))
        stack.enter_context(_without_checks())
        for name in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
            whole = _unpadded(getattr(masking_utils, name))
            stack.enter_context(replaced(masking_utils, name, whole))
        yield


@contextmanager
def _without_checks() -> Iterator[None]:
    """Skip the checks that transformers makes of data (whether image tokens are as many as images)."""
    before = os.environ.get(CHECKS)
    os.environ[CHECKS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[CHECKS]
        else:
            os.environ[CHECKS] = before


def _unpacked(_: object) -> None:
    """No batch is packed."""


def _unpadded(original: Callable[..., bool]) -> Callable[..., bool]:
    def ignored(_: object, *rest: Any, **keys: Any) -> bool:
        return original(None, *rest, **keys)

    return ignored
