"""The times of many plans at once.

The plans of an array share a script, whose sizes are arrays over batches. Each batch meets each
machine, so that an array has an element for every pair of them, machines fastest. Plans of four and
more micro-steps share a script, too: how many there are is an axis in front.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from zeroplan.schedule.events import Event, Repeat, Script
from zeroplan.timing.many_clocks import ManyClocks
from zeroplan.timing.many_parts import Part, SomePrices, alone
from zeroplan.timing.many_prices import Array, ManyPrices, key_of
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
    """Sum up the seconds of each kind, those of events that take the same once."""
    told: dict[tuple[object, ...], tuple[Event, int]] = {}
    for event, times in calls:
        price = prices[event]
        key = (
            *(key_of(each) for each in (price.kernels, price.sent, price.moved)),
            id(price.work),
            event.stream == "compute",
            event.phase == "optimizer",
        )
        known, before = told.get(key, (event, 0))
        told[key] = known, before + times
    return sums(told.values(), prices)


def of_micro_steps(script: Script) -> Iterator[tuple[Event, int]]:
    """Yield the events of one more micro-step with the number of times that they happen."""
    for item in script.items:
        if isinstance(item, Repeat) and item.micro_steps:
            yield from Script(resident=(), items=item.items).calls()


def _run(parts: Sequence[Part], kernels: Array, more: Array, *, overlaps: bool) -> _Ran:
    clocks = ManyClocks(SomePrices(parts), overlaps, more)
    clocks.run(parts[0].script.items)
    end, compute = clocks.end, clocks.clocks["compute"] - clocks.waited
    idle = compute - kernels - clocks.slowed
    if np.any(clocks.left):
        several = np.broadcast_to(more, clocks.left.shape)
        end, compute, idle = (
            np.array(np.broadcast_to(each, several.shape)) for each in (end, compute, idle)
        )
        for place in zip(*np.nonzero(clocks.left), strict=True):
            walk = alone(parts, place[-1], int(several[place]), overlaps=overlaps)
            end[place], compute[place], idle[place] = walk.end, walk.compute, walk.idle
    return _Ran(end, compute, idle)
