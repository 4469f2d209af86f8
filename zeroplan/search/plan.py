"""From a question with open ends to a configuration."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from zeroplan.estimation.answer import answer
from zeroplan.estimation.budget import with_budget
from zeroplan.estimation.record import Estimate
from zeroplan.estimation.resolve import resolve
from zeroplan.records import replace
from zeroplan.search.blocks import Refusal, blocks, hopeless
from zeroplan.search.journal import Journal
from zeroplan.search.record import Choice, Nearest, Objective, Search
from zeroplan.search.select import (
    Prices,
    Remembered,
    better,
    frontier,
    near_misses,
    races,
    remembered,
    together,
)
from zeroplan.search.space import BATCH_KEYS, GPUS, Space, space_of
from zeroplan.search.workers import mapping
from zeroplan.spec.reading import read_run
from zeroplan.spec.toml import by_dotted_key

__all__ = ["TRIED", "families", "plan", "search"]

TRIED: Final[dict[str, tuple[object, ...]]] = {
    "training.micro_batch_size": (1, 2, 4, 8, 16, 32),
    "training.activation_checkpointing": ("none", "selective", "full"),
    "sharding.reshard_after_forward": (True, False),
}
"""What is tried where nothing is said, besides all strategies."""

Family = list[dict[str, Any]]
"""Structures, by dotted key, that are priced together."""

SHOWN: Final = 10
"""Plans that are told of each kind. [count]"""

UNREAL: Final = 3
"""Hypothetical plans that are told behind the best. [count]"""


def plan(
    *,
    objective: Objective = "fastest",
    prices: Prices | None = None,
    allow_tight: bool = False,
    tokens: int | None = None,
    global_batch_size: int | None = None,
    profiles: Path | None = None,
    **keys: object,
) -> Search:
    """Find the best configuration.

    Parameters
    ----------
    objective
        fastest (tokens per second of all GPUs), cheapest (USD per token), fewest-gpus, or
        most-headroom.
    prices
        USD per GPU-hour by GPU profile; the empty name stands for all GPUs. Without one it is the
        node type's, where its profile has one.
    allow_tight
        Whether plans within the uncertainty of the memory's limit count as fitting.
    tokens
        Tokens to train on: what they take with the best plan stands in its estimate's budget.
    global_batch_size
        Sequences that all GPUs together take in per step; micro-steps follow from it. [count]
    profiles
        Folder whose hardware profiles come before the shipped ones.
    **keys
        Keys of the spec file by name, each with a value or a sequence of them. Where nothing is
        said all strategies, `TRIED` micro-batch sizes, ways of checkpointing and of resharding are
        tried.

    Raises
    ------
    SpecError
        A key or a value is not known, a price is missing, or all combinations are refused.

    Examples
    --------
    >>> found = plan(model="8b", gpus=8, sequence_length=4096)
    >>> found.chosen.verdict
    'fits'

    """
    values = {**TRIED, **by_dotted_key(keys)}
    space = space_of(values, global_batch_size=global_batch_size, profiles=profiles)
    return search(space, objective, prices=prices or {}, allow_tight=allow_tight, tokens=tokens)


def search(
    space: Space,
    objective: Objective,
    *,
    prices: Prices,
    allow_tight: bool = False,
    tokens: int | None = None,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int = 1,
) -> Search:
    """Search a space; an interrupt ends it with the best so far.

    Parameters
    ----------
    space
        What is searched.
    objective, prices, allow_tight, tokens
        As for `plan`.
    journal
        What an earlier search of the same space found, and where this one writes what it finds.
    progress
        Told how many families of structures of how many are done.
    workers
        Processes that search. [count]

    """
    parts = families(space, objective)
    look = partial(_look, space, prices, tight=allow_tight)
    found: list[Remembered] = []
    interrupted = False
    try:
        with mapping(workers) as mapped:
            for done, each in enumerate(_looked_at(parts, look, mapped, journal), 1):
                found.append(each)
                if progress is not None:
                    progress(done, len(parts))
                if objective == "fewest-gpus" and _enough(found, parts[done:]):
                    break
    except KeyboardInterrupt:
        interrupted = True
    result = _result(space, objective, found, interrupted=interrupted)
    if tokens is None or result.estimate is None:
        return result
    budgeted = with_budget(result.estimate, tokens, prices, space.profiles)
    return replace(result, estimate=budgeted)


def families(space: Space, objective: Objective) -> list[Family]:
    """Return what is searched in its order: for the fewest GPUs each structure by itself."""
    every = space.families()
    if objective != "fewest-gpus":
        return every
    return sorted(([each] for family in every for each in family), key=_gpus)


def _look(space: Space, prices: Prices, family: Family, *, tight: bool) -> Remembered:
    """Price structures and remember what may be among the best."""
    return together(
        (
            Remembered(refused={each.why: each.plans})
            if isinstance(each, Refusal)
            else remembered(each, prices, tight=tight, profiles=space.profiles)
        )
        for each in blocks(space, family, races=partial(races, tight=tight))
    )


def _looked_at(
    parts: list[Family],
    look: Callable[[Family], Remembered],
    mapped: Callable[..., Iterable[Remembered]],
    journal: Journal | None,
) -> Iterator[Remembered]:
    """Yield what each family has, in their order, from the journal where that knows it."""
    known = {} if journal is None else journal.known
    others = [family for place, family in enumerate(parts) if place not in known]
    results = iter(mapped(look, others))
    for place in range(len(parts)):
        if place in known:
            yield known[place]
            continue
        found = next(results)
        if journal is not None:
            journal.write(place, found)
        yield found


def _gpus(family: Family) -> int:
    """Return how many GPUs the first structure has; all have as many where it does not say."""
    return int(family[0].get(GPUS, 0))


def _enough(found: list[Remembered], left: list[Family]) -> bool:
    """Whether all structures that are left have more GPUs than one that fits, on real links."""
    fitting = (each for every in found for each in every.choices if each.hypothetical is None)
    fewest = min((each.gpus for each in fitting), default=None)
    return fewest is not None and bool(left) and _gpus(left[0]) > fewest


def _result(
    space: Space, objective: Objective, found: list[Remembered], *, interrupted: bool
) -> Search:
    every = together(found)
    if not every.plans and every.refused and not interrupted:
        raise hopeless(every.refused)
    best = _apart(sorted(every.choices, key=better(objective)))
    real = sum(each.hypothetical is None for each in best)
    return Search(
        objective=objective,
        searched=space.axes,
        plans=every.plans,
        fitting=every.fitting,
        refused=tuple(Refusal(why=why, plans=plans) for why, plans in every.refused.items()),
        best=(*best[:real][:SHOWN], *best[real:][:UNREAL]),
        frontier=frontier(every.choices),
        near_misses=near_misses(every.near_misses, best[0] if best else None, objective, SHOWN),
        nearest=_nearest(every),
        estimate=_whole(space, best[0]) if best else None,
        interrupted=interrupted,
    )


def _nearest(every: Remembered) -> Nearest | None:
    """Return what lacks least where nothing fits, not even nearly."""
    if every.choices or every.near_misses or every.nearest is None:
        return None
    return Nearest(**every.nearest)


def _apart(choices: list[Choice]) -> list[Choice]:
    """Keep the best of each structure and machine."""
    first: dict[tuple[object, ...], Choice] = {}
    for each in choices:
        apart = ((key, value) for key, value in each.keys.items() if key not in BATCH_KEYS)
        first.setdefault((each.gpu, *apart), each)
    return list(first.values())


def _whole(space: Space, choice: Choice) -> Estimate:
    """Answer for a plan as `estimate` does."""
    return answer(resolve(read_run(space.whole(choice.keys)), space.profiles))
