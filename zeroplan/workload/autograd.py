"""A unit's backward: which gradients live, when saved tensors go.

Source: torch/csrc/autograd/engine.cpp, input_buffer.cpp (2.13).
"""

from collections import Counter

from zeroplan.records import dataclass, field
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import (
    Category,
    Change,
    Checkpointing,
    Step,
    freed,
    release,
    transient,
)
from zeroplan.workload.liveness import recomputed_operations, selected_storages
from zeroplan.workload.model import Unit
from zeroplan.workload.tape import Operation, Parameter, Tensor

__all__ = ["backward"]


def backward(
    unit: Unit, checkpointing: Checkpointing = "none", *, reentrant: bool = False
) -> list[Step]:
    """Run a unit's backward: the output's gradient is live before it, the input's after it.

    A checkpoint holds the unit's input until the end, the reentrant one the recomputed output and
    the output's gradient too; otherwise the input goes with its last reader.
    """
    if checkpointing == "none" or unit.input is None:
        engine = _Engine(unit)
        return engine.steps()
    engine = _Engine(unit, held=unit.input.storage, reentrant=reentrant)
    steps = engine.steps()
    kept = [unit.input, *_unread(unit)] if checkpointing == "selective" else [unit.input]
    return [*steps, engine.finish(kept)]


def _unread(unit: Unit) -> list[Tensor]:
    """Return kept outputs that the recomputation stops short of reading."""
    done = {
        t.storage
        for operation in unit.operations[: recomputed_operations(unit)]
        for t in operation.outputs
    }
    return [t for t in selected_storages(unit) if t not in done]


@dataclass(slots=True)
class _Buffer:
    """A gradient's storage and how many hold it."""

    tensor: Tensor
    references: int = 0

    def change(self, sign: int) -> Change:
        category: Category = "loss" if self.tensor.purpose == "loss" else "temporaries"
        owner = f"gradient of {self.tensor.name}"
        return Change(category, owner, sign * round_up(self.tensor.bytes))


@dataclass(slots=True)
class _Engine:
    """Autograd's engine: gradients wait at the operation that made their tensor."""

    unit: Unit
    held: Tensor | None = None
    """The unit's input where a checkpoint holds it to the end."""
    reentrant: bool = False
    """Whether that checkpoint's own backward holds the unit's output and its gradient as well."""
    incoming: _Buffer = field(init=False)
    waiting: dict[Tensor, _Buffer] = field(default_factory=dict)
    savers: Counter[Tensor] = field(default_factory=Counter)
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        out = self.unit.output
        self.waiting[out] = self.incoming = _Buffer(out, references=1 + self.reentrant)
        for operation in self.unit.operations:
            self.savers.update({t.storage for t in operation.saved})

    def steps(self) -> list[Step]:
        """Run every operation's backward that a gradient comes to."""
        return [self.run(each) for each in reversed(self.unit.operations) if each.runs_backward]

    def run(self, operation: Operation) -> Step:
        """Run one operation's backward, release what it saved, hand its gradients on."""
        self.changes = []
        incoming = [self.waiting.pop(t) for t in operation.outputs if t in self.waiting]
        if operation.saved_gradients:
            self._release_saved(operation)
        outgoing = self._gradients(operation, incoming) if incoming else {}
        trained = [p for p in operation.parameters if p.gets_gradient]
        for parameter in trained:
            size = self._gradient_bytes(parameter)
            self.changes.append(Change("unsharded_gradients", parameter.name, size))
        self.changes += transient(operation.backward_temporaries, operation.name)
        for buffer in incoming:
            self._drop(buffer)
        if not operation.saved_gradients:
            self._release_saved(operation)
        self.changes += self._summed(trained)
        for tensor, buffer in outgoing.items():
            self._accumulate(tensor, buffer)
        self.changes += [_Buffer(t).change(+1) for t in operation.opens]
        self.changes += [_Buffer(t).change(-1) for t in operation.closes]
        complete = tuple(p for p in trained if p.tied_to is None)
        return Step(operation, "backward", tuple(self.changes), complete)

    def _summed(self, parameters: list[Parameter]) -> list[Change]:
        """Add to the gradient that another user of a tied weight has put down.

        After a head that is not in place: a linear layer's weight gradient is a transposed view
        (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace, 2.13).
        """
        return [
            Change("unsharded_gradients", p.name, sign * self._gradient_bytes(p))
            for p in parameters
            if p.summed
            for sign in ((+1, -1, -1) if p.summed == "anew" else (-1,))
        ]

    def _gradient_bytes(self, parameter: Parameter) -> Size:
        return round_up(parameter.elements * self.unit.gradient_itemsize)

    def finish(self, kept: list[Tensor]) -> Step:
        """Release what a checkpoint held to the end."""
        held = [*kept, self.unit.output] if self.reentrant else kept
        self.changes = [freed(t, kept=True) for t in held]
        if self.reentrant:
            self._drop(self.incoming)
        return release(self.changes)

    def _gradients(self, operation: Operation, incoming: list[_Buffer]) -> dict[Tensor, _Buffer]:
        targets = dict.fromkeys(t for t in operation.inputs if t.differentiable)
        outgoing = {}
        for tensor in targets:
            passed = operation.passes_gradient and tensor.itemsize == incoming[0].tensor.itemsize
            buffer = incoming[0] if passed else _Buffer(tensor)
            if not passed:
                self.changes.append(buffer.change(+1))
            buffer.references += 1
            outgoing[tensor] = buffer
        return outgoing

    def _accumulate(self, tensor: Tensor, buffer: _Buffer) -> None:
        """Add in place where the engine alone holds the older gradient, else into a new one."""
        old = self.waiting.get(tensor)
        if old is None:
            self.waiting[tensor] = buffer
        elif old.references == 1:
            self._drop(buffer)
        else:
            total = _Buffer(tensor, references=1)
            self.changes.append(total.change(+1))
            self._drop(old)
            self._drop(buffer)
            self.waiting[tensor] = total

    def _drop(self, buffer: _Buffer) -> None:
        buffer.references -= 1
        if buffer.references == 0:
            self.changes.append(buffer.change(-1))

    def _release_saved(self, operation: Operation) -> None:
        for storage in {t.storage: None for t in operation.saved}:
            self.savers[storage] -= 1
            if self.savers[storage] == 0 and storage is not self.held:
                self.changes.append(freed(storage, kept=True))
