"""Steps by structure: written down once and kept, so that other GPUs and links only price them.

A structure is all that a step depends on but the hardware: the model, how it is trained, how it is
sharded, and the groups of ranks. Its step, what the step holds and what it sends are the same in
every question that has it.
"""

from collections import Counter
from functools import lru_cache
from typing import Final

from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice
from zeroplan.compute.offload import OffloadPrice
from zeroplan.compute.price import Works
from zeroplan.estimation.resolve import Question, strategy_groups
from zeroplan.memory.walk import Trace, trace
from zeroplan.records import dataclass, field, replace
from zeroplan.schedule import script
from zeroplan.schedule.events import Collective, Phase, Script
from zeroplan.schedule.plan import Joined, Plan
from zeroplan.sharding.groups import Groups
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.architecture import Architecture
from zeroplan.spec.run import ModelChoice, ShardingChoice, TrainingChoice, TuningChoice
from zeroplan.timing.host import host_price
from zeroplan.timing.prices import Free
from zeroplan.timing.walk import Timing, walk
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import Workload, workload
from zeroplan.workload.tuning import Tuning

__all__ = [
    "KEPT",
    "Clocked",
    "Counted",
    "Structure",
    "WrittenStep",
    "clocked",
    "counted_model",
    "priced",
    "shared",
    "structure",
    "timed",
    "write",
]

KEPT: Final = 64
"""Structures whose steps are kept: a sweep over links and GPUs asks for few."""

Counted = dict[tuple[bool, Tuning | None], tuple[Workload, Joined]]
"""What the strategies of a question share: a workload under autocast and one without, for each way
to train a part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrittenStep:
    """A step and what it gives without a price."""

    plan: Plan
    step: Script
    found: Trace
    sent: Counter[tuple[Phase, Collective]]
    """Collectives with the number of their calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model and how it is trained: what all strategies of a question have in common."""

    architecture: Architecture
    model: ModelChoice
    training: TrainingChoice
    tuning: TuningChoice

    def __hash__(self) -> int:
        """Leave the architecture to the comparison: it has every block in it."""
        return hash((self.architecture.name, self.model, self.training, self.tuning))


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What a step depends on."""

    trained: Trained
    row: Sharding
    choice: ShardingChoice
    groups: Groups
    question: Question = field(compare=False)
    """Any question that has this structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """A step and the hardware that prices it."""

    written: WrittenStep
    price: GpuPrice
    wires: Fabric
    offload: OffloadPrice
    works: Works = field(compare=False)
    """Prices of operations that strategies share."""

    def __hash__(self) -> int:
        """Leave the links' figures to the comparison."""
        wires = (self.wires.intra.id, self.wires.inter.id, self.wires.node_bytes_per_second)
        return hash((self.written, self.price, wires))


def structure(question: Question, row: Sharding) -> Structure:
    """Return what a strategy's step depends on."""
    run = question.run
    return Structure(
        trained=Trained(
            architecture=question.architecture,
            model=replace(run.model, source=""),
            training=run.training,
            tuning=run.tuning,
        ),
        row=row,
        choice=replace(run.sharding, strategy=row.strategy),
        groups=strategy_groups(row, run),
        question=question,
    )


def write(plan: Plan) -> WrittenStep:
    """Write a step down, with what it holds and sends."""
    step = script(plan)
    sent: Counter[tuple[Phase, Collective]] = Counter()
    for event, times in step.calls():
        if event.collective is not None:
            sent[event.phase, event.collective] += times
    return WrittenStep(plan=plan, step=step, found=trace(step), sent=sent)


@lru_cache(maxsize=KEPT)
def shared(trained: Trained) -> Counted:  # noqa: ARG001  # it is the key
    """Return where workloads of this model and training are kept, for all strategies."""
    return {}


@lru_cache(maxsize=KEPT)
def priced(trained: Trained, price: GpuPrice, *, fuses: bool) -> Works:  # noqa: ARG001  # a key
    """Return where prices of this model's operations on a GPU are kept, for all strategies."""
    return Works(price, fuses)


def counted_model(
    question: Question, counted: Counted, *, autocast: bool, part: Tuning | None = None
) -> tuple[Workload, Joined]:
    """Count the model for a question's batch, once for each part of it that is trained."""
    run, key = question.run, (autocast, part)
    if key not in counted:
        batch = Batch(
            sequences=run.training.micro_batch_size,
            sequence_length=run.training.sequence_length,
            dtype=run.training.compute_dtype,
            attention=run.model.attention,
            norm=run.model.norm,
            rope=run.model.rope,
            loss=run.model.loss,
            keep_logits=run.model.keep_logits,
            experts=run.model.experts,
            expert_imbalance=run.model.expert_imbalance,
            expert_alignment=run.model.expert_alignment,
            compile=run.model.compile,
            float8=run.training.fp8,
            autocast=autocast,
            tuning=part,
        )
        counted[key] = workload(question.architecture, batch), Joined()
    return counted[key]


@lru_cache(maxsize=8 * KEPT)
def timed(run: Clocked) -> Timing:
    """Run a step on the clock of a GPU and its links."""
    written = run.written
    return clocked(written.plan, written.step, run.price, run.wires, run.offload, works=run.works)


def clocked(
    plan: Plan,
    step: Script,
    price: GpuPrice,
    wires: Fabric,
    offload: OffloadPrice,
    *,
    works: Works | None = None,
    free: Free = frozenset(),
) -> Timing:
    """Run a plan's step on the clock; its host, and whether kernels fuse, are the plan's own."""
    compiled = plan.workload.batch.compile
    return walk(
        step,
        price,
        wires,
        host_price(plan.row, compiled=compiled),
        overlaps=wires.overlaps,
        fuses=compiled,
        offload=offload,
        works=works,
        free=free,
    )
