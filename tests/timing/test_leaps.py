"""A walk that leaps over copies shows what one event by event does, and so do many at once.

Whatever waits for whatever.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.compute.price import Work
from zeroplan.schedule.events import Event, Item, Repeat, Script, Stream
from zeroplan.timing.many import timings, totals
from zeroplan.timing.many_clocks import ManyClocks
from zeroplan.timing.many_parts import Part, SomePrices, alone
from zeroplan.timing.many_prices import ManyPrices
from zeroplan.timing.prices import EventPrice
from zeroplan.timing.walk import Walk

RELATIVE = 1e-8
"""Copies that are alike within 1e-12 are leapt over, up to 64 times 40 of them here."""

SLOWDOWN = 0.25
PLANS = 5
NO_WORK = Work(
    seconds=0.0,
    matmul_seconds=0.0,
    attention_seconds=0.0,
    forward_kernels=0,
    backward_kernels=0,
)


class Prices(ManyPrices):
    """Prices of many plans that are given, not found."""

    def __init__(self) -> None:
        dict.__init__(self)
        self.slowdown = SLOWDOWN


class Case(NamedTuple):
    """A script with its micro-steps, and what its events take."""

    script: Script
    prices: Prices
    more: Any
    """Micro-steps beyond the four of the script. [A, plans]"""


STREAMS: tuple[Stream, ...] = ("compute", "compute", "compute", "all-gather", "reduce-scatter")
TICKS = st.one_of(st.integers(0, 6), st.integers(0, 400).map(lambda n: n / 64))
"""Times of events: many of them equal, so that sides meet. [ms]"""


def _event(
    prices: Prices,
    stream: Stream,
    seconds: Any,
    issue: float,
    *,
    waits: Iterable[str] = (),
    mark: str = "",
    line: str = "line",
) -> Event:
    """Return an event that takes so long, in kernels or on a link."""
    made = Event(
        name="event",
        phase="backward",
        stream=stream,
        owner="block",
        waits=tuple(dict.fromkeys(waits)),
        mark=mark,
    )
    computes = stream == "compute"
    prices[made] = EventPrice(
        seconds=seconds,
        kernels=seconds if computes else 0.0,
        sent=0.0 if computes else seconds,
        moved=0.0,
        issue=issue,
        line="" if computes else line,
        work=NO_WORK,
    )
    return made


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw scripts of a few events in repeats, of five plans with three numbers of micro-steps."""
    prices = Prices()
    marks = st.sampled_from(("", "", "", "mark"))
    waits = st.lists(st.sampled_from(("compute", "all-gather", "mark")), max_size=2)
    ticks = st.lists(TICKS, min_size=PLANS, max_size=PLANS).map(lambda each: np.array(each, float))

    def several(most: int) -> list[Item]:
        return [
            _event(
                prices,
                draw(st.sampled_from(STREAMS)),
                1e-3 * draw(st.one_of(TICKS, ticks)),
                1e-3 * draw(TICKS) / 2,
                waits=draw(waits),
                mark=draw(marks),
            )
            for _ in range(draw(st.integers(1, most)))
        ]

    def repeat() -> Repeat:
        return Repeat(items=tuple(several(4)), times=draw(st.integers(2, 40)))

    micro_step = Repeat(items=(*several(3), repeat(), *several(2)), times=4, micro_steps=True)
    items = (*several(2), micro_step, *several(2), repeat())
    counts = draw(st.lists(st.integers(0, 60), min_size=3, max_size=3))
    return _case(prices, items, counts)


def _case(prices: Prices, items: tuple[Item, ...], counts: list[int]) -> Case:
    more = np.array([[count] * PLANS for count in counts])
    return Case(Script(resident=(), items=items), prices, more)


@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans())
def test_leaps_change_nothing(case: Case, overlaps: bool) -> None:
    _assert_walked(case, overlaps=overlaps)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None)
@given(cases(), st.booleans())
def test_leaps_change_nothing_in_thousands_of_scripts(case: Case, overlaps: bool) -> None:
    _assert_walked(case, overlaps=overlaps)


def test_copies_inside_which_leap_elsewhere_are_not_carried_on() -> None:
    """From micro-step to micro-step the host is later, and meets the link a few blocks later."""
    prices = Prices()
    kernel = _event(prices, "compute", 2e-3, 3e-3, waits=["all-gather"])
    send = _event(prices, "reduce-scatter", 5e-3, 1.3828125e-3)
    issued = _event(prices, "compute", 0.0, 0.5e-3)
    gather = _event(prices, "all-gather", 0.0, 1e-3)
    blocks = Repeat(items=(kernel, send), times=12)
    micro_steps = Repeat(items=(blocks, issued, gather), times=4, micro_steps=True)
    _assert_walked(_case(prices, (micro_steps,), [0, 2, 20]), overlaps=True)


def test_copies_inside_are_told_apart_by_their_order() -> None:
    """The kernel is the later one in three of four copies: but for the first, or but for the last."""
    prices = Prices()

    def either(one: float, other: float) -> Any:
        return 1e-3 * np.array([one, one, one, other, other])

    kernels = _event(prices, "compute", either(1.0, 16.0), 0.0)
    copied = _event(prices, "host to device", either(13.0, 1.0), 0.0)
    copy = _event(prices, "host to device", 5e-3, 0.0)
    kernel = _event(prices, "compute", either(6.0, 1.0), 0.0, waits=["host to device"])
    items = (kernels, copied, Repeat(items=(copy, kernel), times=4))
    part = Part(Script(resident=(), items=items), prices, np.arange(PLANS))
    clocks = ManyClocks(SomePrices([part]), overlaps=True, more=0)
    clocks.compared = True
    clocks.run(items)
    assert len(set(clocks.sides.pattern[:3])) == len(set(clocks.sides.pattern[3:])) == 1
    assert clocks.sides.pattern[0] != clocks.sides.pattern[4]


def test_copies_inside_that_change_places_are_not_leapt_over() -> None:
    """The first kernel leaves one collective while the second drifts into another one."""
    prices = Prices()

    def event(stream: Stream, seconds: float, *waits: str) -> Event:
        return _event(prices, stream, seconds, 0.0, waits=waits, line="")

    begun = (
        event("compute", 10.0),
        event("reduce-scatter", 1.1),
        event("all-gather", 6.11),
        event("cpu", 10.0),
    )
    blocks = Repeat(items=(event("compute", 1.0), event("all-gather", 5.01)), times=2)
    ends = (event("cpu", 10.0), event("compute", 0.0, "cpu"))
    items = (event("reduce-scatter", 9.98), blocks, *ends)
    micro_steps = Repeat(items=items, times=4, micro_steps=True)
    _assert_walked(_case(prices, (*begun, micro_steps), [0, 30, 68]), overlaps=True)


def test_a_wait_that_shrinks_evenly_is_told_for_every_number_of_micro_steps() -> None:
    """The host is a little slower than the gathers, but ahead of them."""
    prices = Prices()
    ahead = _event(prices, "all-gather", 2e-3, 0.0)
    gather = _event(prices, "all-gather", 2.99e-3, 0.0)
    kernel = _event(prices, "compute", 1e-4, 3e-3)
    waiting = _event(prices, "compute", 1e-4, 0.0, waits=["all-gather"])
    micro_steps = Repeat(items=(gather, kernel, waiting), times=4, micro_steps=True)
    case = _case(prices, (ahead, micro_steps), [0, 7, 50])
    waits = [_walked(case, 0, more, overlaps=True).compute / (4 + more) for more in (0, 50)]
    assert waits[0] != pytest.approx(waits[1], rel=0.05)
    _assert_walked(case, overlaps=True)


def _assert_walked(case: Case, *, overlaps: bool) -> None:
    script, prices, more = case
    kinds = {name: value + 0 * more for name, value in totals(script, prices, more).items()}
    part = Part(script, prices, np.arange(PLANS))
    found = timings([part], kinds, more=more, overlaps=overlaps)
    for row, plan in np.ndindex(more.shape):
        walk = _walked(case, plan, int(more[row, plan]), overlaps=overlaps)
        leapt = alone([part], plan, int(more[row, plan]), overlaps=overlaps)
        near = RELATIVE * walk.end
        for end in (found.step_seconds[row, plan], leapt.end):
            assert end == pytest.approx(walk.end, abs=near)
        for compute in (found.compute_seconds[row, plan], leapt.compute):
            assert compute == pytest.approx(walk.compute, abs=near)
        for idle in (found.host_seconds[row, plan], leapt.idle):
            assert idle == pytest.approx(walk.idle, abs=near)


def _walked(case: Case, plan: int, more: int, *, overlaps: bool) -> Walk:
    """Walk every event of every copy."""
    walk = alone(
        [Part(Script(resident=(), items=()), case.prices, np.arange(PLANS))],
        plan,
        0,
        overlaps=overlaps,
    )
    for event in _written_out(case.script.items, more):
        walk.take(event)
        walk.leads.clear()
    return walk


def _written_out(items: tuple[Item, ...], more: int) -> list[Event]:
    found: list[Event] = []
    for item in items:
        if isinstance(item, Event):
            found.append(item)
        else:
            copies = item.times + more * item.micro_steps
            found += copies * _written_out(item.items, more)
    return found
