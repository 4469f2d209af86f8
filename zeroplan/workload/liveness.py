"""Which storages live when a unit runs forward, again, and backward.

PyTorch frees a tensor when its last reference goes: a Python variable, an argument, or autograd's
saved list. Walking the tape with those three rules gives every allocation and release in issue
order; saved bytes and transients need no formula of their own.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from zeroplan.records import dataclass, field
from zeroplan.units import Size, round_up
from zeroplan.workload.model import Unit
from zeroplan.workload.tape import Operation, Parameter, Tensor

__all__ = [
    "Category",
    "Change",
    "Checkpointing",
    "Step",
    "backward",
    "forward",
    "recompute",
    "saved_bytes",
    "saved_storages",
]

Category = Literal[
    "parameters",
    "unsharded_parameters",
    "gradients",
    "unsharded_gradients",
    "optimizer",
    "activations",
    "loss",
    "all_gather_buffers",
    "reduce_scatter_buffers",
    "temporaries",
    "workspaces",
    "other",
]


Checkpointing = Literal["none", "full", "selective"]
Direction = Literal["forward", "backward", "cached"]


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes that appear (positive) or go (negative)."""

    category: Category
    owner: str
    bytes: Size


@dataclass(frozen=True, slots=True)
class Step:
    """One operation run forward or backward: the bytes that come and go, and what it yields."""

    operation: Operation
    direction: Direction
    """cached: its result was kept by selective checkpointing, so nothing is computed."""
    changes: tuple[Change, ...]
    gradients: tuple[Parameter, ...] = ()
    """Parameters whose gradient is complete after this step."""


def saved_storages(unit: Unit) -> dict[Tensor, None]:
    """Return the storages that autograd keeps of a unit, each once, in order of first use."""
    return {t.storage: None for operation in unit.operations for t in operation.saved}


def saved_bytes(unit: Unit) -> Size:
    """Sum what autograd keeps of a unit, its input included where an operation saves it. [B]"""
    return sum(round_up(t.bytes) for t in saved_storages(unit))


def selected_storages(unit: Unit) -> dict[Tensor, None]:
    """Return the outputs that torchtitan's selective checkpointing keeps.

    Attention kernels always, matmuls every second one, counted afresh in each block
    (torchtitan/distributed/activation_checkpoint.py, per-op policy).
    """
    kept: dict[Tensor, None] = {}
    matmuls = 0
    for operation in unit.operations:
        matmuls += operation.kernel == "matmul"
        odd_matmul = operation.kernel == "matmul" and matmuls % 2 == 1
        if odd_matmul or operation.kernel == "attention":
            kept |= {t.storage: None for t in operation.outputs}
    return kept


def forward(unit: Unit, checkpointing: Checkpointing = "none") -> list[Step]:
    """Run a unit forward.

    Afterwards its output lives and what autograd saved of it; a checkpointed unit keeps its input
    (and the selected outputs) instead, and its inner tensors go after their last reader.
    """
    keep = {unit.output.storage: None}
    if checkpointing == "none":
        keep |= saved_storages(unit)
    elif checkpointing == "selective":
        keep |= selected_storages(unit)
    entering = unit.input if checkpointing == "none" else None
    return _run(unit.operations, keep, entering=entering)


def recompute(
    unit: Unit, checkpointing: Checkpointing = "full", *, reentrant: bool = False
) -> list[Step]:
    """Run a checkpointed unit forward again, for its backward.

    The non-reentrant variant stops where the last tensor that backward needs exists
    (torch/utils/checkpoint.py, early stop); the reentrant one runs to the end.
    """
    saved = saved_storages(unit)
    cached = selected_storages(unit) if checkpointing == "selective" else {}
    if reentrant:
        return _run(unit.operations, saved | {unit.output.storage: None}, cached)
    return _run(unit.operations[: _stop(unit)], saved, cached)


def backward(
    unit: Unit, checkpointing: Checkpointing = "none", *, reentrant: bool = False
) -> list[Step]:
    """Run a unit's backward: the output's gradient is live before it, the input's after it.

    A checkpoint holds the unit's input until the end, the reentrant one the recomputed output and
    the output's gradient too; otherwise the input goes with its last reader.
    """
    if checkpointing == "none" or unit.input is None:
        engine = _Engine(unit)
        return [engine.run(operation) for operation in reversed(unit.operations)]
    engine = _Engine(unit, held=unit.input.storage, reentrant=reentrant)
    steps = [engine.run(operation) for operation in reversed(unit.operations)]
    kept = [unit.input, *_unread(unit)] if checkpointing == "selective" else [unit.input]
    return [*steps, engine.finish(kept)]


def _unread(unit: Unit) -> list[Tensor]:
    """Return kept outputs that the recomputation stops short of reading."""
    done = {t.storage for operation in unit.operations[: _stop(unit)] for t in operation.outputs}
    return [t for t in selected_storages(unit) if t not in done]


def _stop(unit: Unit) -> int:
    """Return how many operations a recomputation runs: up to the last saved tensor."""
    saved = saved_storages(unit)
    last = max((i for i, operation in enumerate(unit.operations) if operation.saved), default=-1)
    return last + any(t.storage in saved for t in unit.operations[last].outputs)


def _run(
    operations: tuple[Operation, ...],
    keep: dict[Tensor, None],
    cached: dict[Tensor, None] | None = None,
    entering: Tensor | None = None,
) -> list[Step]:
    """Walk forward; what nothing keeps goes after its last use.

    What was kept before (a cached result, what enters) is live already; from here on it lives like
    any other tensor.
    """
    cached = cached or {}
    last_use = {
        tensor.storage: index
        for index, operation in enumerate(operations)
        for tensor in (*operation.outputs, *operation.inputs)
    }
    earlier = cached if entering is None else {**cached, entering.storage: None}
    live = {} if entering is None else {entering.storage: None}
    steps = []
    for index, operation in enumerate(operations):
        outputs = [t for t in operation.outputs if t.base is None]
        new = [t for t in outputs if t not in cached]
        live |= dict.fromkeys(outputs)
        gone = [t for t in live if t not in keep and last_use.get(t, 0) <= index]
        for tensor in gone:
            del live[tensor]
        changes = (
            *(_born(t, kept=t in keep) for t in new),
            *_transient(operation.forward_temporaries, operation.name),
            *(_freed(t, kept=t in earlier) for t in gone),
        )
        direction: Direction = "forward" if new or not outputs else "cached"
        steps.append(Step(operation, direction, changes))
    leftover = [_freed(t, kept=t in earlier) for t in live if t not in keep]
    return [*steps, _release(leftover)] if leftover else steps


def _born(tensor: Tensor, *, kept: bool) -> Change:
    return Change(_category(tensor, kept=kept), tensor.name, round_up(tensor.bytes))


def _freed(tensor: Tensor, *, kept: bool) -> Change:
    return Change(_category(tensor, kept=kept), tensor.name, -round_up(tensor.bytes))


def _category(tensor: Tensor, *, kept: bool) -> Category:
    if tensor.purpose != "activations":
        return tensor.purpose
    return "activations" if kept else "temporaries"


def _transient(sizes: Iterable[Size], owner: str) -> list[Change]:
    rounded = [round_up(size) for size in sizes]
    return [
        *(Change("temporaries", owner, size) for size in rounded),
        *(Change("temporaries", owner, -size) for size in rounded),
    ]


def _release(changes: list[Change]) -> Step:
    return Step(Operation(name="release", kernel="none"), "forward", tuple(changes))


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

    def run(self, operation: Operation) -> Step:
        """Run one operation's backward, release what it saved, hand its gradients on."""
        self.changes = []
        incoming = [self.waiting.pop(t) for t in operation.outputs if t in self.waiting]
        if operation.saved_gradients:
            self._release_saved(operation)
        outgoing = self._gradients(operation, incoming) if incoming else {}
        trained = [p for p in operation.parameters if p.trainable]
        for parameter in trained:
            size = self._gradient_bytes(parameter)
            self.changes.append(Change("unsharded_gradients", parameter.name, size))
        self.changes += _transient(operation.backward_temporaries, operation.name)
        for buffer in incoming:
            self._drop(buffer)
        if not operation.saved_gradients:
            self._release_saved(operation)
        self.changes += self._summed(trained)
        for tensor, buffer in outgoing.items():
            self._accumulate(tensor, buffer)
        complete = tuple(p for p in trained if p.tied_to is None)
        return Step(operation, "backward", tuple(self.changes), complete)

    def _summed(self, parameters: list[Parameter]) -> list[Change]:
        """Add the gradient that a tied head has put down: the sum is a new storage.

        It cannot be added in place, for a linear layer's weight gradient is a transposed view
        (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace, 2.13).
        """
        return [
            Change("unsharded_gradients", p.name, sign * self._gradient_bytes(p))
            for p in parameters
            if p.shared
            for sign in (+1, -1, -1)
        ]

    def _gradient_bytes(self, parameter: Parameter) -> Size:
        return round_up(parameter.elements * self.unit.gradient_itemsize)

    def finish(self, kept: list[Tensor]) -> Step:
        """Release what a checkpoint held to the end."""
        held = [*kept, self.unit.output] if self.reentrant else kept
        self.changes = [_freed(t, kept=True) for t in held]
        if self.reentrant:
            self._drop(self.incoming)
        return _release(self.changes)

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
                self.changes.append(_freed(storage, kept=True))
