"""Equal blocks told once stand for exactly the blocks that were there."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.schedule.stretches import Stretch, micro_steps, stretches

KEYS = st.lists(st.integers(min_value=0, max_value=2), max_size=40)
PERIODIC = st.builds(
    lambda head, period, times, tail: head + period * times + tail,
    KEYS,
    st.lists(st.integers(min_value=0, max_value=2), min_size=1, max_size=8),
    st.integers(min_value=1, max_value=20),
    KEYS,
)


@given(st.one_of(KEYS, PERIODIC))
def test_every_unit_is_told_once_in_order(keys: list[int]) -> None:
    told = [i for stretch in stretches(keys) for i in _indices(stretch)]
    assert told == list(range(len(keys)))


@given(st.one_of(KEYS, PERIODIC))
def test_what_repeats_is_equal(keys: list[int]) -> None:
    for stretch in stretches(keys):
        period = len(stretch.units)
        for index in _indices(stretch):
            first = stretch.units[(index - stretch.units[0]) % period]
            assert keys[index] == keys[first]


@given(PERIODIC)
def test_a_repeated_period_has_equals_before_and_after_it(keys: list[int]) -> None:
    """What comes before the first and after the last copy differs; they stand apart."""
    for stretch in stretches(keys):
        if stretch.times > 1:
            first, last = stretch.units[0], list(_indices(stretch))[-1]
            period = len(stretch.units)
            again = [keys[i] for i in stretch.units]
            assert keys[first - period : first] == again
            assert keys[last + 1 : last + 1 + period] == again


@pytest.mark.parametrize(
    ("pattern", "blocks", "longest"),
    [("a", 126, 126), ("ab", 48, 24), ("aab", 60, 20), ("aaaaab", 60, 10)],
)
def test_a_pattern_is_found(pattern: str, blocks: int, longest: int) -> None:
    keys = ["embedding", *(pattern[i % len(pattern)] for i in range(blocks)), "head"]
    assert max(stretch.times for stretch in stretches(keys)) == longest - 2


@given(st.integers(min_value=1, max_value=1000))
def test_micro_steps_are_as_many_as_asked_and_the_last_is_last(count: int) -> None:
    told = list(chain.from_iterable([last] * times for times, last in micro_steps(count)))
    assert told == [False] * (count - 1) + [True]


def _indices(stretch: Stretch) -> range:
    start = stretch.units[0]
    return range(start, start + len(stretch.units) * stretch.times)
