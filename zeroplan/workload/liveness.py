"""Which storages live when a unit runs forward and again; `autograd` runs it backward.

PyTorch frees a tensor when its last reference goes: a Python variable, an argument, or autograd's
saved list. Walking the tape with those three rules gives every allocation and release in issue
order; saved bytes and transients need no formula of their own.
"""

from collections.abc import Callable

from zeroplan.records import replace
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import (
    Change,
    Checkpointing,
    Direction,
    Step,
    born,
    freed,
    release,
    transient,
)
from zeroplan.workload.model import Unit
from zeroplan.workload.tape import Operation, Tensor

__all__ = [
    "cached_copies",
    "forward",
    "recompute",
    "recomputed_operations",
    "saved_bytes",
    "saved_storages",
    "selected_storages",
]


def saved_storages(unit: Unit) -> dict[Tensor, None]:
    """Return the storages that autograd keeps of a unit, each once, in order of first use."""
    return {t.storage: None for operation in unit.operations for t in operation.saved}


def saved_bytes(unit: Unit) -> Size:
    """Sum what autograd keeps of a unit, its input included where an operation saves it. [B]"""
    return sum(round_up(t.bytes) for t in saved_storages(unit))


def selected_storages(unit: Unit) -> dict[Tensor, None]:
    """Return the outputs that torchtitan's selective checkpointing keeps.

    Attention kernels always, matmuls every second one, counted afresh in each block
    (torchtitan/distributed/activation_checkpoint.py, per-op policy). A compiled block drops those
    that its backward never reads, as the last projection of a Llama's
    (torch/_functorch/partitioners.py, 2.13).
    """
    kept: dict[Tensor, None] = {}
    matmuls = 0
    read = recomputed_operations(unit) if unit.compiled else None
    for operation in unit.operations[:read]:
        matmuls += operation.kernel == "matmul"
        odd_matmul = operation.kernel == "matmul" and matmuls % 2 == 1
        if odd_matmul or operation.kernel == "attention":
            kept |= {t.storage: None for t in operation.outputs}
    return kept


def cached_copies(unit: Unit) -> dict[Tensor, None]:
    """Return the weight copies that autocast's cache holds until its context is left.

    It keeps those of weights that are trained (`cached_cast` in aten/src/ATen/autocast_mode.cpp,
    2.13).
    """
    outputs = (t for operation in unit.operations for t in operation.outputs)
    return {t: None for t in outputs if t.purpose == "unsharded_parameters" and t.differentiable}


def forward(unit: Unit, checkpointing: Checkpointing = "none") -> list[Step]:
    """Run a unit forward.

    Afterwards its output lives and what autograd saved of it; a checkpointed unit keeps its input
    (and the selected outputs) instead, and its inner tensors go after their last reader. An
    offloaded one's input goes as soon as its caller has the output in its place.
    """
    keep = {unit.output.storage: None}
    if checkpointing == "none":
        keep |= saved_storages(unit)
    else:
        keep |= cached_copies(unit)
    if checkpointing == "selective":
        keep |= selected_storages(unit)
    entering = unit.input if checkpointing == "none" else None
    steps = _run(unit.operations, keep, entering=entering)
    if checkpointing == "offloaded" and unit.input is not None:
        return [*steps, _moved(unit.input, freed)]
    return steps


def recompute(
    unit: Unit, checkpointing: Checkpointing = "full", *, reentrant: bool = False
) -> list[Step]:
    """Run a checkpointed unit forward again, for its backward.

    The non-reentrant variant stops where the last tensor that backward needs exists
    (torch/utils/checkpoint.py, early stop); the reentrant one runs to the end.
    """
    saved = saved_storages(unit)
    cached = selected_storages(unit) if checkpointing == "selective" else {}
    first = []
    if checkpointing == "offloaded" and unit.input is not None:
        first = [_moved(unit.input, born)]
    if reentrant:
        return [*first, *_run(unit.operations, saved | {unit.output.storage: None}, cached)]
    return [*first, *_run(unit.operations, saved, cached, stop=recomputed_operations(unit))]


def _moved(tensor: Tensor, change: Callable[..., Change]) -> Step:
    """Return the copy of a tensor to the host, or from there.

    It runs on the compute stream (`save_on_cpu`, torch/autograd/graph.py, 2.13).
    """
    alone = release([change(tensor, kept=True)])
    return replace(alone, moved_bytes=tensor.bytes)


def recomputed_operations(unit: Unit) -> int:
    """Return how many operations a recomputation runs: up to the last that keeps something."""
    saved = saved_storages(unit)
    last = max((i for i, operation in enumerate(unit.operations) if operation.keeps), default=-1)
    return last + any(t.storage in saved for t in unit.operations[last].outputs)


def _run(
    operations: tuple[Operation, ...],
    keep: dict[Tensor, None],
    cached: dict[Tensor, None] | None = None,
    entering: Tensor | None = None,
    stop: int | None = None,
) -> list[Step]:
    """Walk forward; what nothing keeps goes after its last use.

    A walk that stops before the end leaves what still waits for its use: that goes together.

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
    for index, operation in enumerate(operations[:stop]):
        outputs = [t for t in operation.outputs if t.base is None]
        new = [t for t in outputs if t not in cached]
        live |= dict.fromkeys(outputs)
        gone = [t for t in live if t not in keep and last_use.get(t, 0) <= index]
        for tensor in gone:
            del live[tensor]
        changes = (
            *(born(t, kept=t in keep) for t in new),
            *transient(operation.forward_temporaries, operation.name),
            *(freed(t, kept=t in earlier) for t in gone),
        )
        direction: Direction = "forward" if new or not outputs else "cached"
        steps.append(Step(operation, direction, changes))
    leftover = [freed(t, kept=t in earlier) for t in live if t not in keep]
    return [*steps, release(leftover)] if leftover else steps
