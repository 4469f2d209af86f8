"""ZeRO-1 and ZeRO-2's backward of a unit, cut where a gradient enters the bucket.

What is done with a gradient once it is there is written into the event that computes it. Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import fresh_category, gradient_itemsize
from zeroplan.schedule.events import Recorder
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.layout import unique
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Change, Step
from zeroplan.workload.tape import Parameter

__all__ = ["Arrival", "Arrivals", "Part", "largest_copied"]


class Part(NamedTuple):
    """Something done on the compute stream."""

    changes: tuple[Change, ...] = ()
    steps: tuple[Step, ...] = ()
    traffic_bytes: Size = 0
    """HBM bytes of copies that no operation accounts for. [B]"""


class Arrival(NamedTuple):
    """A gradient in the order in which they arrive."""

    at: int
    """Number of parts of its unit before it enters the bucket."""
    place: int
    """Of its parameter in the unit."""
    elements: int


@dataclass(slots=True)
class Arrivals:
    """Backward of the units of a model; equal blocks share it."""

    plan: Plan
    accumulated: bool
    """Whether gradients of an earlier micro-step wait, to which new ones are added."""
    enter: bool
    """Whether gradients enter the bucket as they arrive."""
    known: dict[tuple[int, str], tuple[list[Part], list[Arrival]]] = field(default_factory=dict)
    joined: dict[tuple[int, str, int, int | None], list[Part]] = field(default_factory=dict)

    def of(self, index: int) -> list[Arrival]:
        """List a unit's gradients."""
        return self._unit(index)[1]

    def emit(self, recorder: Recorder, index: int, start: int, end: int | None = None) -> None:
        """Write a run of a unit's parts down."""
        key = (id(self.plan.units[index]), self.plan.checkpointing(index), start, end)
        if key not in self.joined:
            self.joined[key] = list(_joined(self._unit(index)[0][start:end]))
        owner = self.plan.owner(index)
        for changes, steps, traffic_bytes in self.joined[key]:
            recorder.emit(
                "backward", owner, changes=changes, steps=steps, traffic_bytes=traffic_bytes
            )

    def _unit(self, index: int) -> tuple[list[Part], list[Arrival]]:
        key = (id(self.plan.units[index]), self.plan.checkpointing(index))
        if key not in self.known:
            self.known[key] = self._cut(index)
        return self.known[key]

    def _cut(self, index: int) -> tuple[list[Part], list[Arrival]]:
        owned = unique(self.plan.units[index].parameters)
        trained = (parameter for parameter in owned if parameter.trainable)
        places = {id(parameter): place for place, parameter in enumerate(trained)}
        parts: list[Part] = []
        arrivals: list[Arrival] = []
        for segment, parameters in self.plan.gradient_chunks(index):
            parts.append(Part(segment.changes, segment.steps))
            for parameter in parameters:
                parts.append(Part(tuple(self._taken_in(parameter))))
                arrivals.append(Arrival(len(parts), places[id(parameter)], parameter.elements))
                if self.enter:
                    parts.append(self._entered(parameter))
        return parts, arrivals

    def _taken_in(self, parameter: Parameter) -> Iterator[Change]:
        """Cast a fresh gradient to the dtype in which it waits, add it to what waits already."""
        plan, category = self.plan, fresh_category(self.plan)
        itemsize = gradient_itemsize(plan)
        size = round_up(parameter.elements * itemsize)
        if itemsize != plan.dtypes.compute:
            fresh = round_up(parameter.elements * plan.dtypes.compute)
            yield Change(category, "gradient", size)
            yield Change(category, "gradient", -fresh)
        if self.accumulated:
            yield Change(category, "gradient", -size)

    def _entered(self, parameter: Parameter) -> Part:
        """Copy a gradient into the bucket; one that is larger is reduced where it is.

        Where the optimizer is offloaded, it is cloned first.
        """
        size = round_up(parameter.elements * gradient_itemsize(self.plan))
        gone = Change(fresh_category(self.plan), "gradient", -size)
        if parameter.elements > largest_copied(self.plan):
            return Part((-gone, gone), traffic_bytes=2 * size) if self.plan.offload else Part()
        return Part((gone,), traffic_bytes=2 * size)


def _joined(parts: list[Part]) -> Iterator[Part]:
    """Join what is done with gradients to the operations that compute them."""
    last = Part()
    for part in parts:
        if part.steps:
            yield last
            last = part
        else:
            last = Part(
                last.changes + part.changes, last.steps, last.traffic_bytes + part.traffic_bytes
            )
    yield last


def largest_copied(plan: Plan) -> int:
    """Return up to which size a gradient is copied to the bucket's buffer [elements]."""
    settings = plan.choice.deepspeed
    return settings.reduce_bucket_size if settings.contiguous_gradients else 0
