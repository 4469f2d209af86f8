"""Plans in blocks that are priced at once: one structure, its batches, the machines it runs on."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from zeroplan.errors import SpecError
from zeroplan.estimation.many import Batches, Figures, Priced, Races, figures, priced
from zeroplan.estimation.resolve import Question, elsewhere, one_node, resolve, strategy_groups
from zeroplan.records import dataclass, replace
from zeroplan.schedule.stretches import FEWEST_PERIODS
from zeroplan.search.space import BATCH_KEYS, Space
from zeroplan.sharding.groups import Groups
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.reading import read_run
from zeroplan.spec.verify import verify

__all__ = ["Block", "Refusal", "blocks", "hopeless"]


REFUSED: Final = -1
"""In place of a number of micro-steps that cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Plans that cannot be."""

    why: str
    plans: int
    """[count]"""


def hopeless(refused: Collection[str]) -> SpecError:
    """Return why no plan can be: the one reason of all, as a single estimate gives it, or the first."""
    first, *others = refused
    count = len(others) + 1
    return SpecError(
        f"nothing to price; the first of {count} reasons: {first}" if others else first
    )


class Machines(NamedTuple):
    """Machines whose groups of ranks are alike."""

    keys: list[dict[str, object]]
    """What names each, by dotted key."""
    questions: list[Question]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Plans of one structure with their figures, arrays over [A, batches, machines]."""

    structure: dict[str, object]
    """Values by dotted key."""
    machines: Machines
    batches: Batches
    figures: Figures

    @property
    def gpus(self) -> int:
        """GPUs of each of the plans. [count]"""
        return self.machines.questions[0].run.cluster.gpus

    def question(self, place: int) -> Question:
        """Return what is asked at a place of the flattened arrays, but for its batch."""
        return self.machines.questions[place % len(self.machines.questions)]

    def keys(self, place: int) -> dict[str, object]:
        """Return the values that make the plan at a place of the flattened arrays."""
        steps, batch, machine = np.unravel_index(place, self.figures.verdict.shape)
        numbers = (
            self.batches.micro_batch_size[batch],
            self.batches.sequence_length[batch],
            self.batches.gradient_accumulation_steps[steps, batch],
        )
        return {
            **self.structure,
            **self.machines.keys[machine],
            **dict(zip(BATCH_KEYS, map(int, numbers), strict=True)),
        }


def blocks(
    space: Space, family: Sequence[dict[str, object]], *, races: Races | None = None
) -> Iterator[Block | Refusal]:
    """Yield the plans of structures, and what of them contradicts itself or is not modelled.

    Parameters
    ----------
    space
        What is searched.
    family
        Structures that are priced together: values of the keys that are neither a batch's nor a
        machine's.
    races
        Which plans race against each other for time; all get times where there are none.

    """
    ready: list[tuple[dict[str, object], Machines, Batches, Priced]] = []
    kin: dict[bytes, Priced] = {}
    for structure in family:
        for found in _machines(space, structure):
            if isinstance(found, Refusal):
                yield found
                continue
            for batches in _batches(space, found.questions[0]):
                each = _priced(found, batches, kin)
                if isinstance(each, tuple):
                    ready.append((structure, *each))
                else:
                    yield each
    every = figures([each for *_, each in ready], races)
    for (structure, machines, batches, _), values in zip(ready, every, strict=True):
        yield Block(structure=structure, machines=machines, batches=batches, figures=values)


def _priced(
    machines: Machines, batches: Batches | Refusal, kin: dict[bytes, Priced]
) -> tuple[Machines, Batches, Priced] | Refusal:
    questions = machines.questions
    if isinstance(batches, Refusal):
        return replace(batches, plans=batches.plans * len(questions))
    row = STRATEGIES[questions[0].run.sharding.strategy or "none"]
    sizes = np.stack([batches.micro_batch_size, batches.sequence_length]).tobytes()
    try:
        found = priced(questions, row, batches, kin.get(sizes))
    except SpecError as error:
        plans = batches.gradient_accumulation_steps.size * len(questions)
        return Refusal(why=str(error), plans=plans)
    kin.setdefault(sizes, found)
    return machines, batches, found


def _machines(space: Space, structure: dict[str, object]) -> Iterator[Machines | Refusal]:
    """Yield the machines whose groups of ranks are alike, since their steps are."""
    alike: defaultdict[Groups, Machines] = defaultdict(lambda: Machines([], []))
    first: Question | None = None
    for machine in space.machines():
        try:
            run = read_run(space.whole(structure), machine)
            if first is None:
                first = question = resolve(run, space.profiles)
            else:
                question = elsewhere(first, run.cluster, space.profiles)
        except SpecError as error:
            yield Refusal(why=str(error), plans=space.batches)
            continue
        row, cluster = question.strategies[0], question.run.cluster
        if row.replicates and cluster.gpus <= (cluster.gpus_per_node or 1):
            yield Refusal(why=one_node(row.strategy), plans=space.batches)
            continue
        found = alike[strategy_groups(row, question.run)]
        found.keys.append(machine)
        found.questions.append(question)
    yield from alike.values()


def _batches(space: Space, question: Question) -> Iterator[Batches | Refusal]:
    """Yield what a step may take in, by the number of micro-steps that its script tells."""
    sizes, lengths, counts = (space.values(key) for key in BATCH_KEYS)
    length = question.run.training.sequence_length
    pairs = np.array([(size or 1, each or length) for size in sizes for each in lengths])
    steps = np.array([[count or 1] * len(pairs) for count in counts])
    if space.global_batch_size is not None:
        world = pairs[:, 0] * question.run.cluster.gpus
        steps = (space.global_batch_size // world * (space.global_batch_size % world == 0))[None]
    for count in np.unique(steps[steps > 0]):
        training = replace(question.run.training, gradient_accumulation_steps=int(count))
        try:
            verify(replace(question.run, training=training))
        except SpecError as error:
            yield Refusal(why=str(error), plans=int((steps == count).sum()))
            steps = np.where(steps == count, REFUSED, steps)
    impossible = int((steps == 0).sum())
    if impossible:
        why = "a global batch must be a multiple of GPUs times micro-batch size"
        yield Refusal(
            why=f"global_batch_size = {space.global_batch_size}: {why}.", plans=impossible
        )
    for told in range(1, FEWEST_PERIODS + 1):
        alike = steps == told if told < FEWEST_PERIODS else steps >= told
        several, some = alike.any(axis=1), alike.any(axis=0)
        if some.any():
            yield Batches(
                micro_batch_size=pairs[some, 0],
                sequence_length=pairs[some, 1],
                gradient_accumulation_steps=steps[np.ix_(several, some)],
            )
