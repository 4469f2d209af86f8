"""Where a node's host memory goes, and what is written to its drives."""

from collections.abc import Iterator

from zeroplan.estimation.explain_case import Case
from zeroplan.estimation.explain_record import Term
from zeroplan.estimation.resolve import ranks_per_node
from zeroplan.memory.host import PROCESS_BYTES, offloaded_activations
from zeroplan.rows import readable
from zeroplan.sharding.offload import HostBuffer

__all__ = ["host_terms"]


def host_terms(case: Case) -> tuple[Term, ...]:
    """List the terms of a node's host memory, each with its formula."""
    memory, ranks = case.now.memory, ranks_per_node(case.question.run)
    processes = ranks * PROCESS_BYTES.value
    load = case.question.run.training.load or "every-rank, assumed"
    terms = [
        *_held((*case.step.host, *offloaded_activations(case.plan)), ranks),
        _bytes("processes", processes, f"{ranks} x {readable(PROCESS_BYTES.value, 'B')}: assumed"),
        _bytes("held by a node", memory.host_bytes, "all of these"),
        _bytes("while loading", memory.host_load_bytes, f"weights and processes: {load}"),
        _bytes("while saving", memory.host_save_bytes, "a full state dict on one rank besides"),
        _bytes("checkpoint on disk", memory.checkpoint_bytes, "parameters and optimizer states"),
    ]
    if memory.nvme_bytes:
        terms.append(_bytes("on the drives", memory.nvme_bytes, f"of {ranks} ranks"))
    if memory.host_memory_bytes is not None:
        terms.append(_bytes("a node has", memory.host_memory_bytes, "of its spec or profile"))
    return tuple(terms)


def _held(buffers: tuple[HostBuffer, ...], ranks: int) -> Iterator[Term]:
    """Sum equal names; what pinning rounds up to a power of two is told."""
    for name in dict.fromkeys(each.name for each in buffers):
        alike = [each for each in buffers if each.name == name]
        held = ranks * sum(each.held_bytes for each in alike)
        asked = ranks * sum(each.bytes * each.times for each in alike)
        words = f"{ranks} ranks x {readable(asked / ranks, 'B')}"
        if any(each.pinned for each in alike):
            words += f", pinned: {readable(held - asked, 'B')} to powers of two"
        yield _bytes(name, held, words)


def _bytes(name: str, value: float, formula: str) -> Term:
    return Term(name=name, value=value, unit="B", formula=formula)
