"""The times of many plans at once.

The plans of an array share a script, whose sizes are arrays over batches. Each batch meets each
machine, so that an array has an element for every pair of them, machines fastest. Plans of four and
more micro-steps share a script, too: how many there are is an axis in front.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from zeroplan.schedule.events import Event, Repeat, Script
from zeroplan.timing.many_clocks import ManyClocks
from zeroplan.timing.many_parts import Part, SomePrices, alone, shape_of
from zeroplan.timing.many_prices import Array, ManyPrices
from zeroplan.timing.many_some import Some
from zeroplan.timing.walk import Timing, sums

__all__ = ["of_micro_steps", "timings", "totals"]


class _Ran(NamedTuple):
    """What clocks show at the end. [s]"""

    end: Array
    compute: Array
    """What the compute stream was busy, or waited for its host."""
    idle: Array
    """The part in which it waited for its host."""


def timings(
    parts: Sequence[Part],
    kinds: dict[str, Array],
    *,
    more: Array = 0,
    overlaps: bool = True,
) -> Timing:
    """Run scripts on the clocks of many plans: `walk` for each of them, all at once.

    Parameters
    ----------
    parts
        Plans, script by script; the scripts have one shape.
    kinds
        `totals` of all these plans, side by side. [s]
    more
        Micro-steps beyond the four that a script tells, broadcast against the plans.
    overlaps
        Whether collectives run beside the compute stream.

    Returns
    -------
    Timing
        Its fields are arrays over plans, or numbers. [s]

    """
    kinds = dict(kinds)
    kernels = kinds.pop("kernels_seconds")
    ran = _run(parts, kernels, more, overlaps=overlaps)
    waits: Array = 0.0
    if np.any(kinds["offload_seconds"]):
        without = [part._replace(prices=part.prices.without_offload()) for part in parts]
        other = _run(without, kernels, more, overlaps=overlaps)
        waits = ran.end - ran.compute - (other.end - other.compute)
    return Timing(
        step_seconds=ran.end,
        compute_seconds=ran.compute,
        host_seconds=ran.idle,
        exposed_offload_seconds=np.maximum(0.0, waits),
        **kinds,
    )


def totals(script: Script, prices: ManyPrices, more: Array) -> dict[str, Array]:
    """Sum up the seconds of each kind, of all plans. [s]"""
    kinds = _sums(script.calls(), prices)
    if np.any(more):
        further = _sums(of_micro_steps(script), prices)
        kinds = {name: kinds[name] + more * further[name] for name in kinds}
    return kinds


def _sums(calls: Iterable[tuple[Event, int]], prices: ManyPrices) -> dict[str, Array]:
    """Sum up the seconds of each kind, those of events that share a price once."""
    told: dict[tuple[object, ...], tuple[Event, int]] = {}
    for event, times in calls:
        key = id(prices[event]), event.stream == "compute"
        known, before = told.get(key, (event, 0))
        told[key] = known, before + times
    return sums(told.values(), prices)


def of_micro_steps(script: Script) -> Iterator[tuple[Event, int]]:
    """Yield the events of one more micro-step with the number of times that they happen."""
    for item in script.items:
        if isinstance(item, Repeat) and item.micro_steps:
            yield from Script(resident=(), items=item.items).calls()


def _run(parts: Sequence[Part], kernels: Array, more: Array, *, overlaps: bool) -> _Ran:
    """Walk together as far as micro-steps go, and on in groups whose scripts end alike."""
    heads, tails = zip(*(part.halves() for part in parts), strict=True)
    clocks = ManyClocks(SomePrices(heads), overlaps, more)
    clocks.run(heads[0].script.items)
    end, compute, slowed = np.empty((3, clocks.rows, clocks.prices.plans))
    shapes = [shape_of(part.script) for part in tails]
    for shape in dict.fromkeys(shapes):
        those = [each == shape for each in shapes]
        group = [*compress(tails, those)]
        rest, places = _taken_out(clocks, parts, those, group)
        rest.run(group[0].script.items)
        end.flat[places] = rest.end
        compute.flat[places] = rest.clocks.get("compute", 0.0) - rest.waited
        slowed.flat[places] = rest.slowed
    idle = compute - kernels - slowed
    for place in zip(*np.nonzero(clocks.left), strict=True):
        walk = alone(parts, place[1], int(more[place]), overlaps=overlaps)
        end[place], compute[place], idle[place] = walk.end, walk.compute, walk.idle
    return _Ran(end, compute, idle)


def _taken_out(
    clocks: ManyClocks, parts: Sequence[Part], those: list[bool], group: list[Part]
) -> tuple[ManyClocks, Array]:
    """Return the clocks of a group of parts in every row, with its prices, and their places."""
    some = Some(np.tile(np.repeat(those, [len(part.plans) for part in parts]), clocks.rows))
    prices = SomePrices(group)
    in_rows = np.tile(np.arange(prices.plans), clocks.rows)
    return clocks.taken_out(some, prices.of(in_rows)), some.places
