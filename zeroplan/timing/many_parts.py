"""Plans of several scripts that share a walk, since only their sizes differ.

A strategy's script on 64 GPUs is that on 128 with other sizes: the same streams, waits and repeats.
Their plans stand side by side in one array.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from zeroplan.records import replace
from zeroplan.schedule.events import Event, Item, Repeat, Script
from zeroplan.timing.many_prices import Array, ManyPrices, key_of, varies
from zeroplan.timing.prices import EventPrice
from zeroplan.timing.walk import Walk

__all__ = ["Part", "SomePrices", "Takes", "alone", "halves", "shape_of"]


OWN_PLACES: Final = 6
"""Places of an event where times are compared besides what it waits for: its communicator, its
host before and behind it, both ends of what slows it down, what is sent. [count]"""


class Part(NamedTuple):
    """Plans of one script."""

    script: Script
    prices: ManyPrices
    plans: Array
    """Their places in [batches x machines]."""

    def halves(self) -> "tuple[Part, Part]":
        """Cut the script behind its micro-steps."""
        head, tail = halves(self.script)
        return self._replace(script=head), self._replace(script=tail)


class Take(NamedTuple):
    """What one event takes, as the clocks of many plans read it. [s]"""

    seconds: Array
    kernels: Array
    elsewhere: Array
    """Its collective, and what it moves outside the GPU's memory."""
    issue: Array
    line: str
    """Name of the clock of the communicator that it uses, if any."""
    place: int
    """Its first place in the script where two times are compared."""


class Takes(dict[Event, Take]):
    """What events take, found when it is first asked for."""

    plans: int
    """How many there are. [count]"""
    slowdown: Array
    """Share by which kernels take longer beside a collective. [1]"""
    weights: Array
    """Of the places in the script where two times are compared, for `Sides`."""

    def of(self, places: Array) -> "Takes":
        """Return the same for some of the plans, by their places among these."""
        return _Others(self, places)


class SomePrices(Takes):
    """Prices of the plans of all parts, side by side, by the events of the first part's script."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = parts
        self._known: dict[tuple[object, ...], Array] = {}
        self._takes: dict[tuple[int, ...], tuple[Array, Array, Array, Array, str]] = {}
        """By identity of the prices, which the parts keep."""
        self.plans = sum(len(part.plans) for part in parts)
        self.slowdown = self._joined([part.prices.slowdown for part in parts])
        each = (_events(part.script) for part in parts)
        self._twins = {twins[0]: twins for twins in zip(*each, strict=True)}
        ends = [*accumulate(len(event.waits) + OWN_PLACES for event in self._twins)]
        self._places = dict(zip(self._twins, [0, *ends], strict=False))
        self.weights = np.random.default_rng(0).integers(2**62, size=max(ends, default=0))

    def __missing__(self, event: Event) -> Take:
        """Put what an event takes in each part side by side, once for events that share prices."""
        pairs = zip(self.parts, self._twins[event], strict=True)
        prices = [part.prices[twin] for part, twin in pairs]
        key = tuple(map(id, prices))
        if key not in self._takes:
            self._takes[key] = self._take(prices)
        found = self[event] = Take(*self._takes[key], self._places[event])
        return found

    def _take(self, prices: list[EventPrice]) -> tuple[Array, Array, Array, Array, str]:
        line = prices[0].line
        elsewhere = self._joined([price.sent for price in prices])
        if any(varies(price.moved) or price.moved for price in prices):
            elsewhere = elsewhere + self._joined([price.moved for price in prices])
        return (
            self._joined([price.seconds for price in prices]),
            self._joined([price.kernels for price in prices]) if line else 0.0,
            elsewhere,
            self._joined([price.issue for price in prices]),
            line,
        )

    def _joined(self, values: list[Array]) -> Array:
        """Take the plans of each part, of arrays that others hold; a number where all agree."""
        if not any(map(varies, values)) and len(set(values)) == 1:
            return values[0]
        key = tuple(map(key_of, values))
        if key not in self._known:
            pairs = zip(self.parts, values, strict=True)
            columns = [
                value[part.plans] if varies(value) else np.full(len(part.plans), value)
                for part, value in pairs
            ]
            self._known[key] = columns[0] if len(columns) == 1 else np.concatenate(columns)
        return self._known[key]


class _Others(Takes):
    """Plans by their places among others; one may be there several times."""

    def __init__(self, whole: Takes, places: Array) -> None:
        super().__init__()
        self.whole, self.places, self.plans = whole, places, len(places)
        self._known: dict[object, Array] = {}
        self.slowdown, self.weights = self._taken(whole.slowdown), whole.weights

    def __missing__(self, event: Event) -> Take:
        """Take some of an event's figures."""
        seconds, kernels, elsewhere, issue, line, place = self.whole[event]
        found = self[event] = Take(
            self._taken(seconds),
            self._taken(kernels),
            self._taken(elsewhere),
            self._taken(issue),
            line,
            place,
        )
        return found

    def _taken(self, values: Array) -> Array:
        if not varies(values):
            return values
        if id(values) not in self._known:
            self._known[id(values)] = values[self.places]
        return self._known[id(values)]


class _OnePlan(dict[Event, EventPrice]):
    """Prices of one plan, taken from those of all."""

    def __init__(self, whole: ManyPrices, plan: int) -> None:
        super().__init__()
        self.whole, self.plan = whole, plan

    def __missing__(self, event: Event) -> EventPrice:
        """Take an event's price."""
        price = self.whole[event]
        found = self[event] = EventPrice(
            seconds=_at(price.seconds, self.plan),
            kernels=_at(price.kernels, self.plan),
            sent=_at(price.sent, self.plan),
            moved=_at(price.moved, self.plan),
            issue=_at(price.issue, self.plan),
            line=price.line,
            work=price.work,
        )
        return found


def alone(parts: Sequence[Part], place: int, more: int, *, overlaps: bool) -> Walk:
    """Walk the script of one plan, by its place in the walk of all, with so many micro-steps more."""
    for part in parts:
        if place < len(part.plans):
            break
        place -= len(part.plans)
    plan = part.plans[place]
    slowdown = _at(part.prices.slowdown, plan)
    walk = Walk(_OnePlan(part.prices, plan), slowdown, overlaps)
    walk.run(
        tuple(
            replace(item, times=item.times + more)
            if isinstance(item, Repeat) and item.micro_steps
            else item
            for item in part.script.items
        )
    )
    return walk


def halves(script: Script) -> tuple[Script, Script]:
    """Cut a script behind its micro-steps."""
    items = script.items
    repeats = (
        n for n, each in enumerate(items, 1) if isinstance(each, Repeat) and each.micro_steps
    )
    cut = next(repeats, len(items))
    return replace(script, items=items[:cut]), replace(script, items=items[cut:])


def shape_of(script: Script) -> tuple[Any, ...]:
    """Return what two scripts have in common where only their sizes differ."""
    numbers = {event: number for number, event in enumerate(_events(script))}
    return tuple(_shape(item, numbers) for item in script.items)


def _shape(item: Item, numbers: dict[Event, int]) -> tuple[Any, ...]:
    if isinstance(item, Event):
        group = item.collective and item.collective.group.name
        return numbers[item], item.stream, item.waits, item.mark, group
    return item.times, item.micro_steps, *(_shape(each, numbers) for each in item.items)


def _events(script: Script) -> list[Event]:
    return list(dict.fromkeys(event for event, _ in script.calls()))


def _at(values: Array, place: int) -> float:
    return float(values[place] if varies(values) else values)
