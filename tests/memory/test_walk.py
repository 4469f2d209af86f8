"""A running sum over a handful of events, worked out by hand."""

from zeroplan.memory.walk import peaks
from zeroplan.schedule.events import Event, Item, Phase, Repeat, Script
from zeroplan.workload.changes import Category, Change


def test_the_peak_is_the_highest_moment_of_each_phase() -> None:
    script = _script(
        _event("forward", ("activations", 5)),
        _event("backward", ("temporaries", 7), ("temporaries", -7), ("activations", -5)),
        _event("optimizer", ("temporaries", 2), ("temporaries", -2)),
    )
    found = peaks(script)
    assert {phase: peak.bytes for phase, peak in found.items()} == {
        "forward": 15,
        "backward": 22,
        "optimizer": 12,
    }
    assert found["backward"].breakdown["temporaries"] == 7
    assert found["backward"].breakdown["parameters"] == 10


def test_a_phase_starts_with_what_the_one_before_left() -> None:
    script = _script(_event("forward", ("activations", 5)), _event("backward", ("activations", -5)))
    backward = peaks(script)["backward"]
    assert backward.bytes == 15
    assert backward.event is None


def test_rising_copies_peak_in_the_last_and_falling_ones_in_the_first() -> None:
    rising = _event("forward", ("temporaries", 3), ("temporaries", -3), ("activations", 1), block=4)
    falling = _event(
        "backward", ("temporaries", 3), ("temporaries", -3), ("activations", -1), block=13
    )
    found = peaks(
        _script(
            Repeat(items=(rising,), times=10, stride=1),
            Repeat(items=(falling,), times=10, stride=-1),
        )
    )
    assert (found["forward"].bytes, found["forward"].block) == (10 + 9 + 3, 13)
    assert (found["backward"].bytes, found["backward"].block) == (10 + 10 + 3, 13)


def test_repeats_within_repeats() -> None:
    block = Repeat(items=(_event("forward", ("activations", 1)),), times=4, stride=1)
    micro_step = (block, _event("backward", ("activations", -4), ("gradients", 1)))
    found = peaks(_script(Repeat(items=micro_step, times=5)))
    assert found["forward"].bytes == 10 + 4 * 1 + 4
    assert found["backward"].bytes == found["forward"].bytes


def _script(*items: Item) -> Script:
    return Script(resident=(Change("parameters", "all", 10),), items=items)


def _event(phase: Phase, *changes: tuple[Category, int], block: int | None = None) -> Event:
    return Event(
        name=phase,
        phase=phase,
        stream="compute",
        owner="block",
        block=block,
        changes=tuple(Change(category, "something", size) for category, size in changes),
    )
