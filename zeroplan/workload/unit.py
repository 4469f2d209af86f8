"""A wrap unit: what is gathered, computed and dropped together."""

from typing import Literal

from zeroplan.records import dataclass
from zeroplan.workload.tape import Operation, Parameter, Tensor

__all__ = ["Unit", "UnitKind"]

UnitKind = Literal["embedding", "block", "norm", "head"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """One wrap unit: its operations in order, what enters it and what leaves it."""

    name: str
    kind: UnitKind
    operations: tuple[Operation, ...]
    input: Tensor | None
    """The hidden states that it reads; None where it reads token ids or pixels."""
    output: Tensor
    gradient_itemsize: int
    """Bytes per element of the gradients that its parameters get. [B]"""
    compiled: bool = False
    """Whether it goes through torch.compile."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """In the order in which the framework registers them."""
        return tuple(p for operation in self.operations for p in operation.parameters)

    @property
    def tower(self) -> str:
        """Name of its stack; empty for a decoder's."""
        return self.name.removesuffix(self.kind).strip()
