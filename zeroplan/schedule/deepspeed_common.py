"""What DeepSpeed's schedules share: dtypes, streams, the flat parameter group.

Source: deepspeed/runtime/engine.py, deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from zeroplan.records import dataclass
from zeroplan.schedule.events import Recorder
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.reference import reference_forward
from zeroplan.sharding.layout import flat_shard_elements, unique
from zeroplan.units import DTYPE_BYTES, Size, round_up
from zeroplan.workload.changes import Category, Change
from zeroplan.workload.tape import Parameter

__all__ = [
    "FP64",
    "Copies",
    "FlatGroup",
    "Gradient",
    "Piece",
    "accumulation_itemsize",
    "flat_parameters",
    "forward",
    "fresh_category",
    "gradient_itemsize",
    "in_running_order",
    "transient",
    "unit_starts",
    "wire_itemsize",
]

FP64: Final = 8


def wire_itemsize(plan: Plan) -> int:
    """Return the bytes per element of a reduction (`communication_data_type`)."""
    asked = plan.choice.deepspeed.communication_data_type
    return DTYPE_BYTES[asked] if asked else plan.dtypes.reduce


def accumulation_itemsize(plan: Plan) -> int:
    """Return the bytes per element in which gradients accumulate (`grad_accum_dtype`)."""
    asked = plan.choice.deepspeed.grad_accum_dtype
    return DTYPE_BYTES[asked] if asked else plan.dtypes.compute


def gradient_itemsize(plan: Plan) -> int:
    """Return the bytes per element of a gradient that waits for ZeRO-1 or ZeRO-2's reduction."""
    return plan.dtypes.compute if plan.row.divides_gradients else accumulation_itemsize(plan)


def fresh_category(plan: Plan) -> Category:
    """Return the category of gradients as autograd puts them down."""
    return "unsharded_gradients" if plan.row.divides_gradients else "gradients"


def transient(category: Category, owner: str, *sizes: Size) -> tuple[Change, ...]:
    """Return storages that come one after the other and go together."""
    born = [Change(category, owner, size) for size in sizes if size]
    return (*born, *(-each for each in born))


class Gradient(NamedTuple):
    """A gradient by its form alone: equal blocks have equal ones."""

    elements: int
    shape: tuple[int, ...]


class Piece(NamedTuple):
    """What a rank owns of a parameter, and how many ranks from it on own as much."""

    rank: int
    elements: int
    ranks: int = 1


class Copies(NamedTuple):
    """Equal blocks in the order in which they run."""

    units: tuple[int, ...]
    """Of the first copy."""
    times: int
    stride: int
    """Units from one copy to the next; negative in backward."""

    def units_of(self, copy: int) -> tuple[int, ...]:
        """Return the units of a copy."""
        return tuple([index + copy * self.stride for index in self.units])


def in_running_order(plan: Plan, *, forward: bool) -> Iterator[Copies]:
    """Yield the stretches of a model as forward or backward comes to them."""
    for stretch in plan.stretches if forward else reversed(plan.stretches):
        period = len(stretch.units)
        if forward:
            yield Copies(stretch.units, stretch.times, period)
        else:
            later = (stretch.times - 1) * period
            first = tuple([index + later for index in reversed(stretch.units)])
            yield Copies(first, stretch.times, -period)


def flat_parameters(plan: Plan, *, trained: bool = False) -> list[Parameter]:
    """List every parameter of every unit in the order of registration, tied ones left out.

    Parameters
    ----------
    plan
        Whose parameters.
    trained
        Whether to leave frozen ones out: no optimizer has them.
    """
    return [p for owned in _owned(plan, trained=trained) for p in owned]


def unit_starts(plan: Plan, *, trained: bool = False) -> tuple[int, ...]:
    """Return the place of each unit's first parameter among all, and last of all their number.

    Equal blocks share their parameters, so a parameter is known by its place.
    """
    return tuple(accumulate(map(len, _owned(plan, trained=trained)), initial=0))


def forward(recorder: Recorder, plan: Plan) -> None:
    """Write the forward of ZeRO-2 and less down: every rank has the parameters."""
    recorder.phase = "forward"
    reference_forward(recorder, plan)
    plan.write_forward(recorder)


def _owned(plan: Plan, *, trained: bool) -> list[tuple[Parameter, ...]]:
    """List each unit's own parameters; equal blocks share them."""
    known = {id(unit): unit for unit in plan.units}
    owned = {
        key: tuple([p for p in unique(unit.parameters) if p.trainable or not trained])
        for key, unit in known.items()
    }
    return [owned[id(unit)] for unit in plan.units]


@dataclass(frozen=True, kw_only=True)
class FlatGroup:
    """The parameter group as one vector, cut into equal parts, one a rank.

    Source: `get_partition_info`, `initialize_gradient_partition` (stage_1_and_2.py).
    """

    elements: tuple[int, ...]
    """Of each parameter, in the order of registration."""
    ranks: int
    round_robin: bool = False
    """Whether parameters are dealt out in turn instead of in order."""

    @cached_property
    def shard(self) -> int:
        """One rank's part, padding included [elements]."""
        return int(flat_shard_elements(sum(self.elements), self.ranks))

    @cached_property
    def spans(self) -> tuple[tuple[Piece, ...], ...]:
        """Each parameter's pieces, equal ones of neighbouring ranks told once."""
        order = list(range(len(self.elements)))
        if self.round_robin:
            order.sort(key=lambda place: place % self.ranks)
        found: list[tuple[Piece, ...]] = [()] * len(order)
        start, shard = 0, self.shard
        for place in order:
            size = self.elements[place]
            end = start + size
            first, last = start // shard, (end - 1) // shard
            if first == last:
                found[place] = (Piece(first, size),)
            else:
                head, tail = (first + 1) * shard - start, end - last * shard
                between = Piece(first + 1, shard, last - first - 1)
                found[place] = (
                    Piece(first, head),
                    *([between] if between.ranks else []),
                    Piece(last, tail),
                )
            start = end
        return tuple(found)

    @cached_property
    def held_elements(self) -> Mapping[int, int]:
        """All elements of every parameter that a rank owns a piece of, by rank.

        Ranks inside one parameter hold that one alone: the first of them stands for all.
        """
        held: dict[int, int] = {}
        for size, pieces in zip(self.elements, self.spans, strict=True):
            for piece in pieces:
                held[piece.rank] = held.get(piece.rank, 0) + size
        return held

    @cached_property
    def fullest_rank(self) -> int:
        """The rank that keeps most gradients: those of its border parameters it keeps whole."""
        return min(self.held_elements, key=lambda rank: (-self.held_elements[rank], rank))

    @cached_property
    def fullest_pieces(self) -> tuple[int, ...]:
        """What the fullest rank owns of each parameter [elements]."""
        fullest = self.fullest_rank
        return tuple(
            [
                sum([piece.elements for piece in pieces if 0 <= fullest - piece.rank < piece.ranks])
                for pieces in self.spans
            ]
        )

    def kept_bytes(self, itemsize: int) -> int:
        """Gradients that the fullest rank keeps, in one buffer [B]."""
        return int(round_up(self.held_elements[self.fullest_rank] * itemsize))
