"""The trace of a micro-step: which fetch needs which parameter, in order.

Source: `PartitionedParameterCoordinator.record_parameters` in
deepspeed/runtime/zero/partitioned_param_coordinator.py (0.19.8).
"""

from itertools import accumulate
from typing import NamedTuple

from zeroplan.schedule.zero3_recurrence import Track, Use
from zeroplan.schedule.zero3_structure import Structure

__all__ = ["Trace", "traced"]


class Trace(NamedTuple):
    """What the coordinator has recorded once its first micro-step is over."""

    tracks: list[Track]
    uses: list[Use]
    """In order."""
    by_parameter: dict[int, list[int]]
    """Fetches that need a parameter."""
    distance: list[int]
    """Elements of all modules fetched before each step."""


def traced(structure: Structure) -> Trace:
    """Record the trace of a structure's laps."""
    sizes: list[int] = []
    tracks: list[Track] = []
    uses: list[Use] = []
    by_parameter: dict[int, list[int]] = {}
    for lap in structure.laps:
        fetches = [hook.parameters for hook in lap.hooks if hook.fetch]
        own = [(p, step) for step, places in enumerate(fetches) for p in sorted(places)]
        first = len(sizes)
        tracks.append(Track(lap, len(uses), len(own), first, len(fetches)))
        uses += [
            (p + copy * lap.shift, first + copy * len(fetches) + step)
            for copy in range(lap.times)
            for p, step in own
        ]
        sizes += [sum([structure.elements[p] for p in places]) for places in fetches] * lap.times
    for parameter, step in uses:
        by_parameter.setdefault(parameter, []).append(step)
    return Trace(tracks, uses, by_parameter, list(accumulate(sizes, initial=0)))
