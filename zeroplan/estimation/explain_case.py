"""One strategy's estimate with everything it was made from."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice, gpu_price
from zeroplan.compute.offload import OffloadPrice, offload_price
from zeroplan.compute.price import Works
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.communication import nccl_communicators
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question, ranks_per_node
from zeroplan.estimation.steps import clocked
from zeroplan.memory.walk import Trace, trace
from zeroplan.schedule import script
from zeroplan.schedule.events import Script
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.strategies import sharding
from zeroplan.timing.host import host_price
from zeroplan.timing.prices import Free, Prices
from zeroplan.timing.walk import Span, Timing, spans

__all__ = ["Case", "case_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What an explanation looks into."""

    question: Question
    profiles: Path | None
    plan: Plan
    step: Script
    found: Trace
    now: StrategyEstimate

    @property
    def communicators(self) -> int:
        """NCCL communicators of a rank; one GPU alone has none. [count]"""
        return nccl_communicators(self.question, self.plan.groups)

    @property
    def price(self) -> GpuPrice:
        """What the GPU achieves in the compute dtype."""
        return gpu_price(self.question.gpu, self.plan.training.compute_dtype)

    def walked(self, price: GpuPrice, wires: Fabric, free: Free = frozenset()) -> Timing:
        """Replay the step on the clock with other prices, or without some collectives' time."""
        return clocked(self.plan, self.step, price, wires, self._offload, free=free)

    def spans(self) -> Iterator[Span]:
        """Yield where every event of the step lies on the clock."""
        works = Works(self.price, self.question.run.model.compile)
        host = host_price(self.plan.row, compiled=self.question.run.model.compile)
        prices = Prices(works, self.question.wires, host, self._offload)
        return spans(self.step, prices, overlaps=self.question.wires.overlaps)

    @property
    def _offload(self) -> OffloadPrice:
        return offload_price(self.question.gpu, ranks_per_node(self.question.run))


def case_of(question: Question, now: StrategyEstimate, profiles: Path | None) -> Case:
    """Write the step of an estimate's strategy down again."""
    plan = plan_for(question, sharding(now.strategy), {})
    step = script(plan)
    return Case(
        question=question, profiles=profiles, plan=plan, step=step, found=trace(step), now=now
    )
