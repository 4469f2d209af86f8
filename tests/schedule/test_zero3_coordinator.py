"""ZeRO-3's coordinator: laws of what it gathers, takes and releases."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from zeroplan.schedule.zero3_coordinator import Action, Hook, Structure, coordinate

SIZES = (40, 3, 25, 60, 3, 10)


def chain(sizes: tuple[int, ...] = SIZES, **settings: int) -> Structure:
    """Modules one after the other, each with one parameter, forward and backward."""
    order = [*range(len(sizes)), *reversed(range(len(sizes)))]
    hooks = (Hook(fetch, (m,), m) for m in order for fetch in (True, False))
    limits = {
        "micro_steps": 1,
        "prefetch_bucket": 0,
        "max_live": 1000,
        "max_reuse_distance": 0,
        "persistence_threshold": 0,
    }
    return Structure(elements=sizes, hooks=tuple(hooks), **{**limits, **settings})


def of(kind: str, structure: Structure) -> list[tuple[int, ...]]:
    """List what the first micro-step does of one kind."""
    return [a.parameters for a in flat(coordinate(structure)[0]) if a.kind == kind]


def flat(actions: tuple[tuple[Action, ...], ...]) -> Iterator[Action]:
    for at_hook in actions:
        yield from at_hook


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
    first, second, third = coordinate(chain(micro_steps=3, max_reuse_distance=1000))
    assert len([a for a in flat(first) if a.kind == "gather"]) == len(SIZES)
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
    for actions in coordinate(structure):
        for hook, at_hook in zip((*structure.hooks, None), actions, strict=True):
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
                elif hook is not None and action.kind == "use":
                    assert set(hook.parameters) <= there
    assert not flying
