"""Where the bytes come from: the states, the activations, the loss and what the driver adds."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from zeroplan.estimation.explain_case import Case
from zeroplan.estimation.explain_peak import highest_bytes
from zeroplan.estimation.explain_record import Accounting, AccountingRow, Buffer, Term
from zeroplan.estimation.record import Memory, PeakBreakdown
from zeroplan.hardware import Quantity
from zeroplan.memory.device import COMMUNICATOR_BYTES, SEGMENT_BYTES, fragmentation
from zeroplan.memory.reserved import replayed_reserved_bytes
from zeroplan.memory.walk import peak_before_update
from zeroplan.rows import readable, significant
from zeroplan.schedule.events import Script
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.accounting import Offload, deepspeed_state_bytes
from zeroplan.sharding.offload import Offloading
from zeroplan.units import GIB, Size, round_up

if TYPE_CHECKING:
    from zeroplan.workload.changes import Checkpointing

__all__ = ["deepspeed_accounting", "memory_terms"]

DEEPSPEED: tuple[str, ...] = ("zero2", "zero3")
"""Strategies for which DeepSpeed has an estimator."""


def memory_terms(case: Case) -> tuple[Term, ...]:
    """List the terms of a GPU's memory, each with its formula."""
    return (
        *_states(case.plan, case.now.memory),
        *_kept(case.plan),
        *_loss(case),
        *_before_steady_state(case),
        *_device(case),
    )


def _bytes(name: str, value: float, formula: str) -> Term:
    return Term(name=name, value=value, unit="B", formula=formula)


def _states(plan: Plan, memory: Memory) -> Iterator[Term]:
    """State the three states: parameters x bytes / ranks, and the padding that makes them more."""
    row, held = plan.row, plan.dtypes
    offload = plan.offload
    places = iter((offload.parameters, offload.gradients, offload.optimizer))
    graded = sum(p.elements * times for p, times in plan.parameters if p.gets_gradient)
    trained = sum(p.elements * times for p, times in plan.trained)
    gradients, states = [(graded, held.gradient)], [(trained, held.optimizer)]
    stored = list(_stored(plan))
    for name, value, parts, divided, words in (
        ("parameters", memory.parameters_bytes, stored, row.divides_parameters, ""),
        ("gradients", memory.gradients_bytes, gradients, row.divides_gradients, ""),
        (
            "optimizer states",
            memory.optimizer_bytes,
            states,
            row.divides_optimizer,
            _optimizer_words(plan),
        ),
    ):
        ranks = plan.groups.shard.ranks if divided else 1
        if next(places) != "none":
            yield _bytes(name, value, "off the GPU")
            continue
        if any(itemsize is None for _, itemsize in parts):
            each = significant(value * ranks / sum(elements for elements, _ in parts))
            yield _bytes(name, value, f"{each} B a parameter, by shape: {held.rule.source}")
            continue
        product = " + ".join(f"{elements:,} x {itemsize} B" for elements, itemsize in parts)
        product = f"({product})" if len(parts) > 1 and divided else product
        formula = f"{product}{words}" + (f" / {ranks} ranks" if divided else "")
        padding = value - sum(elements * (itemsize or 0) for elements, itemsize in parts) / ranks
        if padding >= 1:
            scales = any(p.constants_bytes for p, _ in plan.frozen)
            uneven = words and any(p.flattened for p, _ in plan.frozen)
            what = "more on the fullest rank" if uneven else f"{'scales and ' * scales}padding"
            formula += f" + {_size(padding)} {what}"
        yield _bytes(name, value, formula)


def _stored(plan: Plan) -> Iterator[tuple[int, int]]:
    """Yield how many elements are stored in how many bytes each, trained and frozen ones."""
    by_itemsize: dict[int, int] = {}
    for parameter, times in plan.parameters:
        itemsize = plan.dtypes.stored(parameter)
        by_itemsize[itemsize] = by_itemsize.get(itemsize, 0) + parameter.elements * times
    yield from ((elements, itemsize) for itemsize, elements in by_itemsize.items())


def _optimizer_words(plan: Plan) -> str:
    held = plan.dtypes
    tensors = held.rule.tensors
    parts = [f"{tensors} x {held.state}"] if tensors else []
    if held.master:
        parts.insert(0, f"master {held.master}")
    return f" ({' + '.join(parts)})" if parts else ""


def _elements(plan: Plan) -> int:
    return sum(parameter.elements * times for parameter, times in plan.parameters)


def _kept(plan: Plan) -> Iterator[Term]:
    """State what one block of each kind leaves for its backward, its output included."""
    kinds: dict[tuple[Size, Checkpointing], list[int]] = {}
    for index, unit in enumerate(plan.units):
        if unit.kind == "block":
            segment, _ = plan.forward_parts(index)
            kept = sum(change.bytes for change in segment.changes)
            kinds.setdefault((kept, plan.checkpointing(index)), []).append(index)
    tokens = plan.workload.batch.tokens
    for (kept, mode), indices in kinds.items():
        name = "one block keeps" if len(kinds) == 1 else f"each of {len(indices)} blocks keeps"
        why = {
            "none": "what autograd saves",
            "full": "its output alone: the next block's input",
            "offloaded": "its output, in the place of its input, which is on the host",
            "selective": "its output, attention and every second matmul",
        }[mode]
        yield _bytes(name, kept, f"{tokens:,} tokens x {kept / tokens:,.0f} B: {why}")


def _loss(case: Case) -> Iterator[Term]:
    high = highest_bytes(case.step, "loss")
    head, loss = case.question.architecture.head, case.question.run.model.loss
    if head is None or not high:
        return
    tokens = case.plan.workload.batch.tokens
    each = high / (tokens * head.rows)
    yield _bytes(
        "loss, at its highest",
        high,
        f"{tokens:,} tokens x {head.rows:,} words x {significant(each)} B: {loss}",
    )


def _before_steady_state(case: Case) -> Iterator[Term]:
    """State the moments before the steady state: building the model, and the first step."""
    plan = case.plan
    whole = sum(elements * itemsize for elements, itemsize in _stored(plan))
    held = case.now.memory.parameters_bytes
    if plan.row.divides_parameters:
        formula = f"if built whole on the GPU, then sharded; {_size(held)} from the meta device"
        yield _bytes("building the model", whole, formula)
    if plan.runs_before_update:
        peak = peak_before_update(case.step, case.found.phases)
        formula = "tensors at their highest while there are no optimizer states"
        yield _bytes("before the first update", peak, formula)


def _device(case: Case) -> Iterator[Term]:
    """State what comes on top of the tensors; a stream's pool keeps what it once reached."""
    memory = case.now.memory
    workspaces = memory.peak_allocated_bytes - memory.peak_tensor_bytes
    yield _bytes(
        "cuBLAS workspaces", workspaces, "two handles: of forward's thread and of autograd's"
    )
    pools = {name: round_up(size, SEGMENT_BYTES) for name, size in case.found.pools_bytes.items()}
    beyond = sum(pools.values()) - memory.peak_tensor_bytes
    if len(pools) > 1:
        listed = ", ".join(f"{name} {significant(size / GIB)}" for name, size in pools.items())
        yield _bytes("pools beyond the peak", beyond, f"highs of {listed}")
    if memory.reserved_bytes is None or memory.device_bytes is None:
        return
    slack = memory.reserved_bytes - sum(pools.values()) - workspaces
    part = fragmentation(case.question.gpu)
    kind = part.kind if isinstance(part, Quantity) else "assumed"
    share = significant(100 * part.value)
    yield _bytes("fragmentation", slack, f"{share} % of all pools: {kind}")
    yield _bytes("reserved so far", memory.reserved_bytes, _replayed(case.step, workspaces))
    context, gpu = case.question.gpu.context_bytes, case.question.gpu.id
    yield _bytes("CUDA context", context.value, f"{gpu}: {context.kind}")
    if case.communicators:
        each = COMMUNICATOR_BYTES.value
        formula = f"{case.communicators} x {_size(each)} per communicator: assumed"
        yield _bytes("NCCL", case.communicators * each, formula)
    tensors = _size(memory.peak_tensor_bytes)
    yield _bytes("device memory", memory.device_bytes, f"{tensors} of tensors and what follows it")


def _replayed(step: Script, workspaces: int) -> str:
    """Say what the caching allocator would hold, were the step run through a model of it."""
    held = (replayed_reserved_bytes(step, expandable=grows) + workspaces for grows in (False, True))
    fixed, growing = (_size(size) for size in held)
    return f"replayed block by block: {fixed}, with expandable segments {growing}"


def deepspeed_accounting(case: Case, buffers: Iterable[Buffer]) -> Accounting | None:
    """Lay DeepSpeed's estimator beside what lives at the peak, part by part, by name."""
    plan, peak = case.plan, case.now.memory.peak_breakdown_bytes
    if plan.row.strategy not in DEEPSPEED:
        return None
    whole, ranks = _elements(plan), plan.groups.shard.ranks
    layer = _largest_layer(plan)
    offload = _accounted(plan.offload)
    states = deepspeed_state_bytes(plan.row, whole, ranks, largest_layer=layer, offload=offload)
    beside: Offload = "optimizer" if offload == "none" else offload
    parameters = deepspeed_state_bytes(plan.row, whole, ranks, largest_layer=layer, offload=beside)
    claim = f"4 B x {layer:,}" if plan.row.divides_parameters else "2 B x P"
    if plan.row.divides_parameters and offload != "optimizer and parameters":
        claim += f" + 2 B x P / {ranks}"
    rows = (
        _row(
            "parameters",
            parameters,
            peak.parameters + peak.unsharded_parameters,
            f"{claim}; {_living(buffers, 'parameters')}",
        ),
        _row(
            "gradients and optimizer",
            states - parameters,
            peak.gradients + peak.unsharded_gradients + peak.optimizer,
            f"{_states_words(plan)}; {_living(buffers, 'gradients', 'optimizer')}",
        ),
        *_left_out(peak),
    )
    return Accounting(name="DeepSpeed's estimator", rows=rows)


def _accounted(offload: Offloading) -> Offload:
    """Return what the estimator takes off the GPU: never parameters alone."""
    if offload.optimizer == "none":
        return "none"
    return "optimizer" if offload.parameters == "none" else "optimizer and parameters"


def _states_words(plan: Plan) -> str:
    if plan.offload.optimizer != "none":
        return "off the GPU"
    itemsize = 16 if plan.row.divides_parameters else 18
    return f"{itemsize} B x P / {plan.groups.shard.ranks}, fp32 gradients included"


def _living(buffers: Iterable[Buffer], *names: str) -> str:
    """List what lives of these categories, whole or in parts."""
    sizes: Counter[str] = Counter()
    for each in buffers:
        if each.category.removeprefix("unsharded_") in names:
            sizes[each.owner] += each.bytes
    listed = (f"{owner} {_size(size)}" for owner, size in sizes.most_common())
    return "live are " + (", ".join(listed) or "none")


def _left_out(peak: PeakBreakdown) -> Iterator[AccountingRow]:
    for name, size in (
        ("activations", peak.activations),
        ("loss", peak.loss),
        ("all-gather buffers", peak.all_gather_buffers),
        ("reduction buckets", peak.reduce_scatter_buffers),
        ("temporaries", peak.temporaries),
        ("workspaces", peak.workspaces),
        ("other", peak.other),
    ):
        if size:
            yield _row(name, 0, size, "left out")


def _row(name: str, counted: int, live: int, why: str) -> AccountingRow:
    return AccountingRow(name=name, counted_bytes=counted, live_bytes=live, why=why)


def _largest_layer(plan: Plan) -> int:
    """Parameters of the module that has most of its own. [elements]"""
    return max(
        sum(parameter.elements for parameter in operation.parameters)
        for unit in plan.units
        for operation in unit.operations
    )


def _size(value: float) -> str:
    return readable(value, "B")
