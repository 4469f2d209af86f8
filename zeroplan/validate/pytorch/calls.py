"""The collectives that reach the dispatcher."""

from typing import Any, Final

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from zeroplan.validate.pytorch.pretend import NAMESPACE
from zeroplan.validate.pytorch.tensors import tensors_in
from zeroplan.validate.record import Calls, Phase

__all__ = ["CallLog"]

NAMES: Final = {
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "reduce_": "reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
}
"""Operators of `c10d` (torch/csrc/distributed/c10d/Ops.cpp), `_c10d_functional` and `pretend`."""

NAMESPACES: Final = ("c10d", "_c10d_functional", NAMESPACE)
OUTPUT_FIRST: Final = (
    *("_allgather_base_", "allgather_", "_reduce_scatter_base_", "reduce_scatter_"),
    *("all_gather", "reduce_scatter"),
)
"""Operators whose first argument is the output and whose second is the input."""


class CallLog(TorchDispatchMode):
    """Counts collectives and their bytes by phase."""

    def __init__(self) -> None:
        super().__init__()
        self.phase: Phase | None = None
        self.sums: dict[tuple[str, Phase], list[int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        """Run an operation and count it if it is a collective."""
        if any(kind is DTensor for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        operator = str(func).split(".")[1]
        if func.namespace in NAMESPACES and operator in NAMES:
            self._count(operator, args, result)
        return result

    def _count(self, operator: str, args: Any, result: object) -> None:
        if self.phase is None:
            return
        if operator in OUTPUT_FIRST:
            given, made = args[1], args[0]
        elif operator.endswith("_"):
            given = made = args[0]
        else:
            given, made = args[0], result
        sums = self.sums.setdefault((NAMES[operator], self.phase), [0, 0, 0])
        for index, amount in enumerate((1, _bytes(given), _bytes(made))):
            sums[index] += amount

    def calls(self) -> tuple[Calls, ...]:
        """Return the sums."""
        return tuple(
            Calls(name=name, phase=phase, count=count, input_bytes=given, output_bytes=made)
            for (name, phase), (count, given, made) in self.sums.items()
        )


def _bytes(value: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))
