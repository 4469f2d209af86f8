"""ZeRO-3's coordinator: laws of what it gathers, takes and releases."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.schedule.zero3_course import coordinate
from zeroplan.schedule.zero3_structure import Action, Actions, Hook, Lap, Structure

SIZES = (40, 3, 25, 60, 3, 10)
LIMITS: dict[str, Any] = {
    "micro_steps": 1,
    "prefetch_bucket": 0,
    "max_live": 1000,
    "max_reuse_distance": 0,
    "persistence_threshold": 0,
}


def chain(sizes: tuple[int, ...] = SIZES, **chosen: int) -> Structure:
    """Modules one after the other, each with one parameter, forward and backward."""
    order = [*range(len(sizes)), *reversed(range(len(sizes)))]
    hooks = tuple(Hook(fetch, (m,), m) for m in order for fetch in (True, False))
    return Structure(elements=sizes, laps=(Lap(hooks),), **{**LIMITS, **chosen})


def of(kind: str, structure: Structure) -> list[tuple[int, ...]]:
    """List what the first micro-step does of one kind."""
    done = coordinate(structure).micro_steps[0]
    return [a.parameters for at_hook in flat(structure, done) for a in at_hook if a.kind == kind]


def flat(
    structure: Structure, done: tuple[tuple[Actions, ...], ...]
) -> Iterator[tuple[Action, ...]]:
    """Write every copy out: what is done at each hook."""
    for lap, in_turn in zip((*structure.laps, Lap(())), done, strict=True):
        for actions in in_turn:
            for copy in range(actions.times):
                for at_hook in actions.by_hook:
                    yield tuple(moved(action, copy * lap.shift) for action in at_hook)


def moved(action: Action, by: int) -> Action:
    return action._replace(parameters=tuple(p + by for p in action.parameters))


def test_without_prefetch_and_reuse_each_module_gathers_its_own_both_ways() -> None:
    alone = [(m,) for m in range(len(SIZES))]
    assert of("gather", chain()) == [*alone, *reversed(alone)]
    assert of("release", chain()) == of("gather", chain())


def test_what_is_reused_within_the_distance_is_gathered_once() -> None:
    """The last module's backward comes next; the first one's is twice the others away."""
    assert len(of("gather", chain(max_reuse_distance=1000))) == len(SIZES)
    near = of("gather", chain(max_reuse_distance=2 * SIZES[-1]))
    assert near.count((len(SIZES) - 1,)) == 1
    assert near.count((0,)) == 2


def test_small_parameters_persist() -> None:
    gathered = {p for group in of("gather", chain(persistence_threshold=3)) for p in group}
    assert gathered == {0, 2, 3, 5}


def test_prefetch_looks_ahead_at_every_hook_and_takes_no_more_than_passes_its_size() -> None:
    assert of("gather", chain((10,) * 4, prefetch_bucket=15))[:2] == [(0,), (1, 2)]


def test_the_live_limit_stops_prefetch_only() -> None:
    tight = chain((10,) * 4, prefetch_bucket=15, max_live=5, max_reuse_distance=1000)
    assert of("gather", tight) == [(0,), (1,), (2,), (3,)]


def test_later_micro_steps_start_from_what_the_one_before_left() -> None:
    structure = chain(micro_steps=3, max_reuse_distance=1000)
    first, second, third = coordinate(structure).micro_steps
    gathers = [a for at_hook in flat(structure, first) for a in at_hook if a.kind == "gather"]
    assert len(gathers) == len(SIZES)
    assert second is third


def test_equal_structures_are_simulated_once() -> None:
    assert coordinate(chain()) is coordinate(chain())


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12).map(tuple),
    chosen=st.fixed_dictionaries(
        {
            "prefetch_bucket": st.integers(0, 120),
            "max_live": st.integers(0, 300),
            "max_reuse_distance": st.integers(0, 300),
            "persistence_threshold": st.integers(0, 20),
            "micro_steps": st.integers(1, 4),
        }
    ),
)
def test_parameters_are_there_when_used_and_nothing_goes_twice(
    sizes: tuple[int, ...], chosen: dict[str, int]
) -> None:
    structure = chain(sizes, **chosen)
    there, flying = set(structure.persistent), set[int]()
    hooks = (*structure.laps[0].hooks, Hook(fetch=False))
    for done in coordinate(structure).micro_steps:
        for hook, at_hook in zip(hooks, flat(structure, done), strict=True):
            if not hook.fetch:
                assert not flying & set(hook.parameters)
            for action in at_hook:
                group = set(action.parameters)
                if action.kind == "gather":
                    assert not group & (there | flying)
                    flying |= group
                elif action.kind == "take":
                    assert group <= flying
                    flying, there = flying - group, there | group
                elif action.kind == "release":
                    assert group <= there - structure.persistent
                    there -= group
            if hook.fetch:
                assert set(hook.parameters) <= there
    assert not flying


@st.composite
def towers(draw: st.DrawFn) -> dict[str, Any]:
    """Equal blocks between a foot and a head, and the settings."""
    sizes = st.lists(st.integers(1, 40), min_size=1, max_size=4)
    return {
        "block": draw(sizes),
        "foot": draw(sizes),
        "head": draw(sizes),
        "copies": draw(st.integers(2, 30)),
        "stops": draw(st.booleans()),
        "settings": {
            "micro_steps": draw(st.integers(1, 3)),
            "prefetch_bucket": draw(st.integers(0, 400)),
            "max_live": draw(st.one_of(st.integers(0, 200), st.integers(0, 2000))),
            "max_reuse_distance": draw(st.one_of(st.integers(0, 60), st.integers(0, 4000))),
            "persistence_threshold": draw(st.integers(0, 30)),
        },
    }


def tower(of: dict[str, Any], *, told_once: bool) -> Structure:
    """Give every copy of the block a lap, or all of them one."""
    foot, block, copies, head = of["foot"], of["block"], of["copies"], of["head"]
    elements = (*foot, *block * copies, *head)
    top = len(foot) + copies * len(block)
    laps = []
    for forward in (True, False):
        last = 0 if forward else copies - 1
        step = len(block) if forward else -len(block)
        units = [lap(0, len(foot), 0, forward=forward), lap(top, len(head), 2, forward=forward)]
        first = lap(
            len(foot) + last * len(block), len(block), 1, forward=forward, stops=of["stops"]
        )
        if told_once:
            middle = [first._replace(times=copies, shift=step)]
        else:
            middle = [shifted(first, copy * step) for copy in range(copies)]
        laps += [units[0], *middle, units[1]] if forward else [units[1], *middle, units[0]]
    return Structure(elements=elements, laps=tuple(laps), **of["settings"])


def lap(start: int, size: int, unit: int, *, forward: bool, stops: bool = False) -> Lap:
    """Nest modules: an outer one that holds the first parameter, leaves with one each.

    Where it stops, backward leaves its last leaf open, as a checkpoint does.
    """
    leaves = range(start, start + size) if forward else range(start + size - 1, start - 1, -1)
    inner = [
        Hook(fetch, (p,), p - start + 1, unit)
        for p in leaves
        for fetch in (True, False)
        if fetch or forward or not stops or p != leaves[-1]
    ]
    outer = [Hook(fetch, (start,), 0, unit) for fetch in (True, False)]
    return Lap((outer[0], *inner, outer[1]), 1, start, size if forward else -size)


def shifted(lap: Lap, by: int) -> Lap:
    places = [
        hook._replace(parameters=tuple(p + by for p in hook.parameters)) for hook in lap.hooks
    ]
    return lap._replace(hooks=tuple(places), start=lap.start + by)


@settings(max_examples=400)
@given(towers())
def test_equal_blocks_told_once_go_as_if_each_were_simulated(drawn: dict[str, Any]) -> None:
    once, plain = (tower(drawn, told_once=told) for told in (True, False))
    short, full = coordinate(once), coordinate(plain)
    assert dict(zip(*short.left[1:], strict=True)) == dict(zip(*full.left[1:], strict=True))
    for one, other in zip(short.micro_steps, full.micro_steps, strict=True):
        assert list(map(unordered, flat(once, one))) == list(map(unordered, flat(plain, other)))


def unordered(at_hook: tuple[Action, ...]) -> list[tuple[object, ...]]:
    """Releases name their parameters in no certain order."""
    return [
        (a.kind, sorted(zip(a.parameters, a.alone or a.parameters, strict=True))) for a in at_hook
    ]


def test_most_of_many_equal_blocks_are_told_once() -> None:
    """Of eighty copies the first and the last few differ."""
    many = {"block": [20, 3], "foot": [50], "head": [50], "copies": 80, "stops": False}
    limits = {**LIMITS, "prefetch_bucket": 30, "max_live": 100, "max_reuse_distance": 100}
    done = coordinate(tower({**many, "settings": limits}, told_once=True)).micro_steps[0]
    assert all(len(in_turn) < 12 for in_turn in done)
    assert max(actions.times for actions in done[1]) > 60
