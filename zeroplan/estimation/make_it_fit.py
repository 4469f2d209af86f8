"""What makes a run fit: single changes first, then several, the cheapest in GPU time first."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer, fits_alone
from zeroplan.estimation.changes import Candidate, changed, remedy
from zeroplan.estimation.choice import Chosen, choose
from zeroplan.estimation.explain_case import case_of
from zeroplan.estimation.explain_record import Remedy, document
from zeroplan.estimation.explain_remedies import CHECKPOINTED, OFFLOADED, candidates
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.records import dataclass
from zeroplan.rows import html
from zeroplan.sharding.strategies import COMPARED
from zeroplan.spec.applies import applies
from zeroplan.spec.run import Run, Strategy
from zeroplan.spec.toml import load_spec

__all__ = ["MakeItFit", "make_it_fit", "ways"]

STRATEGY: Final = "sharding.strategy"

MOST: Final = 3
"""Changes that are told."""

PAIRS: Final = 40
"""Pairs that are tried at most, those first that together save most of what is missing."""

EVERYTHING: Final = Candidate(
    {"sharding.offload_parameters": "cpu", "sharding.offload_optimizer": "cpu"},
    (),
    "all states in host memory, the CPU updates",
)

LIKELY: Final = 0.8
"""Share of what is missing that two changes must save alone for both to be tried at once: they may
help each other."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MakeItFit:
    """What makes a run fit."""

    inputs: Run
    chosen: str
    estimate: StrategyEstimate
    fits: bool
    """Whether it does as it is."""
    missing_bytes: int
    """By how much the device is too small, 0 where it is not."""
    changes: tuple[Remedy, ...]
    """What makes it fit, least GPU time per token first; none where it fits already."""
    nearest: Remedy | None
    """Where nothing does: what comes nearest."""
    nearest_missing_bytes: int | None
    """By how much that is still too big."""
    tried: int
    """Changes that were tried, pairs among them."""
    notes: tuple[str, ...]

    @property
    def answered(self) -> bool:
        """Whether it fits, or can be made to."""
        return self.fits or bool(self.changes)

    def to_json(self) -> str:
        """Return the answer as one JSON document; a figure that is not a number is a bug."""
        return document(self)

    def _repr_html_(self) -> str:
        from zeroplan.estimation.advice_tables import fit_tables  # noqa: PLC0415  # a cycle

        return "".join(html(table) for table in fit_tables(self))


class _Tried(NamedTuple):
    candidate: Candidate
    question: Question
    """With the candidate's keys."""
    missing_bytes: int
    """By how much the device is too small then."""
    then: StrategyEstimate | None
    """The answer where it fits; of what does not, nobody asks the time."""

    @property
    def kind(self) -> tuple[str, ...]:
        """Which keys it sets: of several values of one the cheapest is told."""
        return tuple(sorted(self.candidate.keys))

    @property
    def tight(self) -> bool:
        """Whether a limit lies within the uncertainty, so that it only may fit."""
        return "tight" in (self.answered.verdict, self.answered.memory.host_verdict)

    @property
    def cost(self) -> tuple[bool, float, int]:
        """Whether it only may fit, then GPU time per token [s], then the number of keys."""
        time = self.answered.time
        return (
            self.tight,
            1 / (time.tokens_per_second_per_gpu or 1e-9),
            len(self.candidate.keys),
        )

    @property
    def answered(self) -> StrategyEstimate:
        """The whole answer."""
        return self.then or answer(self.question).estimates[0]


def make_it_fit(
    run: Run | None = None, *, profiles: Path | None = None, **keys: object
) -> MakeItFit:
    """Find the cheapest changes with which a run fits.

    Parameters and errors are those of `explain`.

    Examples
    --------
    >>> make_it_fit(model="8b", gpus=8, strategy="ddp").answered
    True

    """
    return ways(resolve(load_spec(**keys) if run is None else run, profiles), profiles)


def ways(question: Question, profiles: Path | None = None) -> MakeItFit:
    """Do the same for a question whose model and hardware are there already."""
    chosen = choose(question)
    now = chosen.estimate
    if now.fits:
        return _told(chosen, (), ())
    single = list(_singles(chosen, profiles))
    fitting = _cheapest(each for each in single if each.then)
    tried = single
    if sum(not each.tight for each in fitting) < MOST:
        wrapped = list(_wrapped(chosen, single, profiles))
        several = [*wrapped, *_pairs(chosen, single, wrapped, profiles)]
        tried = single + several
        fitting = [*fitting, *_cheapest(each for each in several if each.then)]
        fitting.sort(key=lambda each: each.tight)
    return _told(chosen, tuple(fitting[:MOST]), tuple(tried))


def _told(chosen: Chosen, found: tuple[_Tried, ...], tried: tuple[_Tried, ...]) -> MakeItFit:
    now = chosen.estimate
    nearest = None
    if tried and not found:
        nearest = min(tried, key=lambda each: each.missing_bytes)
    return MakeItFit(
        inputs=chosen.inputs,
        chosen=chosen.why,
        estimate=now,
        fits=now.fits,
        missing_bytes=max(0, _missing(now)),
        changes=tuple(remedy(each.candidate, now, each.answered) for each in found),
        nearest=None if nearest is None else remedy(nearest.candidate, now, nearest.answered),
        nearest_missing_bytes=None if nearest is None else nearest.missing_bytes,
        tried=len(tried),
        notes=chosen.notes,
    )


def _singles(chosen: Chosen, profiles: Path | None) -> Iterator[_Tried]:
    case = case_of(chosen.question, chosen.estimate, profiles)
    once: dict[tuple[tuple[str, object], ...], Candidate] = {}
    for each in (*_more(chosen), *candidates(case)):
        once.setdefault(tuple(sorted(each.keys.items())), each)
    return _tries(chosen, once.values(), profiles)


def _more(chosen: Chosen) -> Iterator[Candidate]:
    """Yield what goes further than the remedies of an explanation."""
    run, per_node = chosen.question.run, chosen.question.wires.gpus_per_node
    batch, steps = run.training.micro_batch_size, run.training.gradient_accumulation_steps
    gpus = run.cluster.gpus
    for strategy in COMPARED:
        if strategy != chosen.estimate.strategy:
            yield Candidate({STRATEGY: strategy}, (), "another wrapper")
    for smaller in range(batch - 1, 0, -1):
        if batch % smaller == 0:
            keys: dict[str, object] = {
                "training.micro_batch_size": smaller,
                "training.gradient_accumulation_steps": steps * (batch // smaller),
            }
            yield Candidate(keys, (), f"{batch // smaller} times the micro-steps, smaller matmuls")
    if run.sharding.shard_size is not None or run.sharding.replicate_size is not None:
        whole: dict[str, object] = {"sharding.shard_size": None, "sharding.replicate_size": None}
        yield Candidate(whole, (), "all ranks share the state")
    if _reads(chosen.estimate.strategy, EVERYTHING):
        yield EVERYTHING
    for factor in (2, 4, 8):
        many = max(gpus * factor, per_node) if gpus < per_node else gpus * factor
        share = steps // factor if steps % factor == 0 else steps
        more: dict[str, object] = {"cluster.gpus": many}
        if share != steps:
            more["training.gradient_accumulation_steps"] = share
        same = "the same batch" if share != steps else f"{many // gpus} times the batch"
        yield Candidate(more, (), f"{many // gpus} times the GPUs, {same}")


def _wrapped(chosen: Chosen, single: list[_Tried], profiles: Path | None) -> Iterator[_Tried]:
    """Try other strategies with what these can offload, and full checkpointing if that is too big."""
    full = chosen.question.run.training.activation_checkpointing == "full"
    for each in single:
        strategy: Any = each.candidate.keys.get(STRATEGY)
        if strategy is None or each.then:
            continue
        offloads = (other for other in (*OFFLOADED, EVERYTHING) if _reads(strategy, other))
        offloaded = (_both(each.candidate, other) for other in offloads)
        found = list(_tries(chosen, offloaded, profiles))
        yield from found
        if not full:
            large = (other.candidate for other in (each, *found) if not other.then)
            less = (_both(candidate, CHECKPOINTED) for candidate in large)
            yield from _tries(chosen, less, profiles)


def _reads(strategy: Strategy, candidate: Candidate) -> bool:
    return all(applies(key, [strategy]) for key in candidate.keys)


def _both(first: Candidate, second: Candidate) -> Candidate:
    return Candidate({**first.keys, **second.keys}, (), f"{first.why}; {second.why}")


def _pairs(
    chosen: Chosen, single: list[_Tried], known: list[_Tried], profiles: Path | None
) -> Iterator[_Tried]:
    """Try two changes at once where each saves something and both together may suffice."""
    missing = _missing(chosen.estimate)
    saving = [(each, missing - each.missing_bytes) for each in single if not each.then]
    saving = [(each, saved) for each, saved in saving if saved > 0]
    likely = [
        (first_saved + second_saved, _both(first.candidate, second.candidate))
        for (first, first_saved), (second, second_saved) in combinations(saving, 2)
        if not first.candidate.keys.keys() & second.candidate.keys.keys()
        and first_saved + second_saved >= LIKELY * missing
    ]
    likely.sort(key=lambda row: -row[0])
    already = [each.candidate.keys for each in known]
    both = (each for _, each in likely[:PAIRS] if each.keys not in already)
    return _tries(chosen, both, profiles)


def _tries(chosen: Chosen, several: Iterable[Candidate], profiles: Path | None) -> Iterator[_Tried]:
    """Try changes, but those that contradict another key."""
    found = (_try(chosen, each, profiles) for each in several)
    return (each for each in found if each is not None)


def _try(chosen: Chosen, candidate: Candidate, profiles: Path | None) -> _Tried | None:
    """Try a change; None where it contradicts another key."""
    try:
        question = changed(chosen.question, chosen.estimate.strategy, candidate.keys, profiles)
        fits, missing = fits_alone(question)
        then = answer(question).estimates[0] if fits else None
    except SpecError:
        return None
    return _Tried(candidate, question, missing, then)


def _cheapest(tried: Iterator[_Tried]) -> list[_Tried]:
    """Sort by cost and keep the cheapest of each kind."""
    kinds: dict[tuple[str, ...], _Tried] = {}
    for each in sorted(tried, key=lambda found: found.cost):
        kinds.setdefault(each.kind, each)
    return list(kinds.values())


def _missing(found: StrategyEstimate) -> int:
    """By how much the device is too small. [B]"""
    return -(found.memory.headroom_bytes or 0)
