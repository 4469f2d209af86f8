"""Which strategy of an answer is looked into, where the question names none."""

from zeroplan.estimation.answer import answer
from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.estimation.resolve import Question
from zeroplan.records import dataclass, replace
from zeroplan.spec.run import Run

__all__ = ["Chosen", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A question and the strategy that is looked into."""

    question: Question
    estimate: StrategyEstimate
    why: str
    """Why it is this one: named, the fastest that fits, or the smallest."""
    notes: tuple[str, ...]

    @property
    def inputs(self) -> Run:
        """The run with every default in its place, the strategy among them."""
        run = self.question.run
        return replace(run, sharding=replace(run.sharding, strategy=self.estimate.strategy))


def choose(question: Question) -> Chosen:
    """Answer a question and choose a strategy of it."""
    whole = answer(question)
    now, why = _choose(whole)
    return Chosen(question=question, estimate=now, why=why, notes=whole.notes)


def _choose(whole: Estimate) -> tuple[StrategyEstimate, str]:
    """Choose a strategy to explain and say why it is this one."""
    if len(whole.estimates) == 1:
        return whole.estimates[0], "the strategy asked for"
    if whole.fastest is not None:
        return whole.fastest, "the fastest strategy that fits"
    smallest = min(whole.estimates, key=lambda each: each.memory.peak_allocated_bytes)
    return smallest, "nothing fits; the strategy with the smallest peak"
