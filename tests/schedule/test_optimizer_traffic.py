"""HBM bytes of an update, held against the kernels that PyTorch launches for it."""

from typing import Any

import pytest

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.spec.toml import load_spec

KEYS: dict[str, Any] = {"model": "smollm-135m", "gpus": 1, "strategy": "none"}
FP32 = 4
"""Bytes of an element. [B]"""


@pytest.mark.torch
@pytest.mark.parametrize("implementation", ["foreach", "for-loop"])
def test_adam_passes_over_memory_as_often_as_its_kernels_do(implementation: str) -> None:
    per_element = _optimizer_bytes(implementation) / FP32
    assert per_element == pytest.approx(_torch_passes(implementation), rel=1e-4)


def test_a_fused_adam_reads_four_tensors_and_writes_three() -> None:
    """Parameter, gradient and two moments; all but the gradient are written."""
    assert _optimizer_bytes("fused") == pytest.approx(7 * FP32, rel=1e-4)


def _optimizer_bytes(implementation: str) -> float:
    """Bytes of an update per parameter."""
    question = resolve(load_spec(**KEYS, optimizer_implementation=implementation))
    plan = plan_for(question, question.strategies[0], {})
    updates = [e for e, _ in script(plan).calls() if e.name == "optimizer step"]
    elements = sum(piece.elements * piece.times for piece in plan.pieces)
    return float(sum(event.traffic_bytes for event in updates)) / elements


def _torch_passes(implementation: str) -> float:
    """Count the tensors that AdamW's kernels read and write, per parameter."""
    import torch  # noqa: PLC0415  # skipped without it
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415

    class Traffic(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(
            self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            in_place = func.overloadpacket.__name__.endswith("_")
            read = {id(t): _size(t) for t in tree_leaves((args, kwargs))}
            self.elements += sum(read.values())
            self.elements += sum(_size(t) for t in tree_leaves(args[0] if in_place else out))
            return out

    def _size(leaf: object) -> int:
        return leaf.numel() if isinstance(leaf, torch.Tensor) and leaf.numel() > 1 else 0

    weights = [torch.nn.Parameter(torch.randn(100)) for _ in range(3)]
    optimizer = torch.optim.AdamW(weights, foreach=implementation == "foreach")
    for weight in weights:
        weight.grad = torch.randn(100)
    optimizer.step()
    with Traffic() as traffic:
        optimizer.step()
    return traffic.elements / sum(weight.numel() for weight in weights)
