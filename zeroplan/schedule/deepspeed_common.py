"""What all of DeepSpeed's schedules share: dtypes, fresh gradients, the flat parameter group.

Source: deepspeed/runtime/engine.py, deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from zeroplan.schedule.events import Collective, CollectiveName, Recorder
from zeroplan.schedule.plan import Chunk, Plan
from zeroplan.sharding.groups import Group
from zeroplan.sharding.layout import unique
from zeroplan.units import DTYPE_BYTES, Size, round_up
from zeroplan.workload.liveness import Category, Change

__all__ = [
    "FP32",
    "FP64",
    "FlatGroup",
    "accumulation_itemsize",
    "chunk_positions",
    "collective",
    "fresh_category",
    "run_forward",
    "transient",
    "wire_itemsize",
]

FP32 = 4
FP64 = 8


def wire_itemsize(plan: Plan) -> int:
    """Return the bytes per element of a reduction: `communication_data_type`. [B]"""
    asked = plan.choice.deepspeed.communication_data_type
    return DTYPE_BYTES[asked] if asked else plan.dtypes.reduce


def accumulation_itemsize(plan: Plan) -> int:
    """Return the bytes per element in which gradients accumulate: `grad_accum_dtype`. [B]"""
    asked = plan.choice.deepspeed.grad_accum_dtype
    return DTYPE_BYTES[asked] if asked else plan.dtypes.compute


def fresh_category(plan: Plan) -> Category:
    """Return the category of gradients as autograd puts them down."""
    return "unsharded_gradients" if plan.row.divides_gradients else "gradients"


def collective(name: CollectiveName, group: Group, sent: Size, kept: Size) -> Collective | None:
    """Return a call as a trace shows it; None where a rank is alone. [B]"""
    if group.ranks == 1:
        return None
    return Collective(name=name, group=group, input_bytes=sent, output_bytes=kept)


def transient(category: Category, owner: str, *sizes: Size) -> tuple[Change, ...]:
    """Return storages that come together and go together."""
    born = tuple(Change(category, owner, size) for size in sizes if size)
    return born + tuple(Change(c.category, c.owner, -c.bytes) for c in born)


def run_forward(plan: Plan, recorder: Recorder) -> None:
    """Run forward with parameters that are all there."""
    recorder.phase = "forward"
    for index in range(len(plan.units)):
        for part in plan.forward_parts(index):
            recorder.compute("forward", plan.owner(index), part)


def chunk_positions(plan: Plan, index: int) -> Iterator[tuple[Chunk, list[int]]]:
    """Yield a unit's backward chunks, each with its gradients' places among its parameters."""
    owned = unique(plan.units[index].parameters)
    places = {id(parameter): place for place, parameter in enumerate(owned)}
    for chunk in plan.gradient_chunks(index):
        yield chunk, [places[id(parameter)] for parameter in chunk[1]]


@dataclass(frozen=True, kw_only=True)
class FlatGroup:
    """The parameter group as one vector, cut into equal parts, one a rank.

    Equal blocks share their parameters, so a parameter is known by its place in the group.
    Source: `get_partition_info`, `initialize_gradient_partition` (stage_1_and_2.py).
    """

    elements: tuple[int, ...]
    """Of each parameter, in the order of registration."""
    ranks: int
    round_robin: bool
    """Whether parameters are dealt out in turn instead of in order."""

    @cached_property
    def shard(self) -> int:
        """Elements of one part, padding included."""
        return int(round_up(sum(self.elements), 2 * self.ranks)) // self.ranks

    @cached_property
    def spans(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Each parameter's pieces as (owner's rank, elements)."""
        order = list(range(len(self.elements)))
        if self.round_robin:
            order.sort(key=lambda place: place % self.ranks)
        found: dict[int, tuple[tuple[int, int], ...]] = {}
        start = 0
        for place in order:
            end = start + self.elements[place]
            found[place] = tuple(
                (rank, min(end, (rank + 1) * self.shard) - max(start, rank * self.shard))
                for rank in range(start // self.shard, -(-end // self.shard))
            )
            start = end
        return tuple(found[place] for place in range(len(order)))

    @cached_property
    def held_elements(self) -> tuple[int, ...]:
        """By rank: all elements of every parameter that it owns a piece of."""
        held = [0] * self.ranks
        for size, pieces in zip(self.elements, self.spans, strict=True):
            for rank, _ in pieces:
                held[rank] += size
        return tuple(held)

    @cached_property
    def fullest_rank(self) -> int:
        """The rank that keeps most gradients: it keeps those of its border parameters whole."""
        return max(range(self.ranks), key=lambda rank: self.held_elements[rank])

    def largest_piece(self, rank: int) -> int:
        """Return the largest piece that a rank owns. [elements]"""
        return max((n for pieces in self.spans for r, n in pieces if r == rank), default=0)
