"""What a schedule is written from: the counted model and how it is trained and sharded."""

import itertools
from collections.abc import Iterator

from zeroplan.records import dataclass, field, replace
from zeroplan.schedule.events import Recorder, Segment, segment
from zeroplan.schedule.stretches import Stretch, stretches
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.groups import Groups
from zeroplan.sharding.layout import unique
from zeroplan.sharding.offload import RESIDENT, Offloading
from zeroplan.sharding.optimizer_states import Piece
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import ShardingChoice, TrainingChoice
from zeroplan.units import FP32, INT64, round_up
from zeroplan.workload.autograd import backward
from zeroplan.workload.changes import Change, Checkpointing, Step
from zeroplan.workload.liveness import cached_copies, forward, recompute
from zeroplan.workload.model import Unit, Workload
from zeroplan.workload.tape import Parameter

__all__ = ["REFERENCE", "Chunk", "Joined", "Plan", "inputs", "inputs_and_buffers"]

REFERENCE = "reference model"
"""Owner of a frozen copy."""
KEPT_LOGITS = "logits of the training loop"

Chunk = tuple[Segment, tuple[Parameter, ...]]
"""A run of backward operations and the parameters whose gradients it completes."""


@dataclass(slots=True)
class Joined:
    """Segments of one workload and one way to train it, joined once.

    Equal blocks share them, by the identity of their unit, and so do all strategies of a question.
    """

    forwards: dict[tuple[int, str], tuple[Segment, Segment]] = field(default_factory=dict)
    backwards: dict[tuple[int, str], tuple[Segment, Segment]] = field(default_factory=dict)
    chunks: dict[tuple[int, str, bool], list[Chunk]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One strategy's answer to a run, ready to be written down as events."""

    workload: Workload
    row: Sharding
    dtypes: Dtypes
    groups: Groups
    training: TrainingChoice
    choice: ShardingChoice
    offload: Offloading = RESIDENT
    reference: Workload | None = None
    """The same counted in the compute dtype alone, where a frozen copy runs beside the model."""
    joined: Joined = field(default_factory=Joined, repr=False)
    block_numbers: tuple[int | None, ...] = field(init=False, repr=False)
    """Each unit's place among the blocks; None for what is no block."""

    stretches: tuple[Stretch, ...] = field(init=False, repr=False)
    """The units in forward order, with periods of equal blocks told once."""

    def __post_init__(self) -> None:
        count = itertools.count()
        numbers = tuple(next(count) if u.kind == "block" else None for u in self.units)
        object.__setattr__(self, "block_numbers", numbers)
        keys = [(id(unit), self.checkpointing(i)) for i, unit in enumerate(self.units)]
        # Blocks that gather several blocks ahead differ near both ends: they are written out.
        far = max(self.choice.forward_prefetch_blocks, self.choice.backward_prefetch_blocks)
        told = [Stretch((i,), 1) for i in range(len(keys))] if far else stretches(keys)
        object.__setattr__(self, "stretches", tuple(told))

    @property
    def units(self) -> tuple[Unit, ...]:
        """Wrap units in forward order."""
        return self.workload.units

    @property
    def parameters(self) -> list[tuple[Parameter, int]]:
        """Every parameter in forward order with the number of its copies; tied ones left out."""
        return [
            (parameter, stretch.times)
            for stretch in self.stretches
            for index in stretch.units
            for parameter in unique(self.units[index].parameters)
        ]

    @property
    def trained(self) -> list[tuple[Parameter, int]]:
        """Those of them that get a gradient."""
        return [(p, times) for p, times in self.parameters if p.trainable]

    @property
    def frozen(self) -> list[tuple[Parameter, int]]:
        """Those that get none."""
        return [(p, times) for p, times in self.parameters if not p.trainable]

    @property
    def frozen_bytes(self) -> int:
        """Those, each in a storage of its own. [B]"""
        stored = self.dtypes.stored
        return int(sum(round_up(p.elements * stored(p)) * times for p, times in self.frozen))

    @property
    def pieces(self) -> list[Piece]:
        """Every trained parameter as an optimizer sees it that updates whole ones."""
        return [
            Piece(parameter.shape, stretch.times, self.units[index].kind == "block")
            for stretch in self.stretches
            for index in stretch.units
            for parameter in unique(self.units[index].parameters)
            if parameter.trainable
        ]

    @property
    def micro_steps(self) -> int:
        """[count]"""
        return self.training.gradient_accumulation_steps

    @property
    def updates_in_backward(self) -> bool:
        """Whether a parameter is updated as soon as its gradient is there."""
        asked = self.training.optimizer_in_backward and not self.keeps_gradients
        return asked and self.row.framework in ("single", "fsdp2")

    @property
    def runs_before_update(self) -> bool:
        """Whether a whole forward and backward runs before there are optimizer states."""
        updates = not (self.keeps_gradients or self.updates_in_backward)
        return self.row.steps_without_states and updates

    @property
    def keeps_gradients(self) -> bool:
        """Whether gradients outlive a step: nobody drops them where there is no optimizer."""
        return self.training.optimizer == "none"

    def owner(self, index: int) -> str:
        """Name a unit; blocks are told apart by their number."""
        return "block" if self.units[index].kind == "block" else self.units[index].name

    def walk_forward(self, recorder: Recorder) -> Iterator[int]:
        """Go through the units in forward order; what is recorded meanwhile is repeated."""
        for stretch in self.stretches:
            with recorder.repeat(stretch.times, len(stretch.units)):
                for index in stretch.units:
                    recorder.block = self.block_numbers[index]
                    yield index
        recorder.block = None

    def walk_backward(self, recorder: Recorder) -> Iterator[int]:
        """Go through the units in backward order; the last copy of a repeated block is first."""
        for stretch in reversed(self.stretches):
            period = len(stretch.units)
            with recorder.repeat(stretch.times, -period):
                for index in reversed(stretch.units):
                    number = self.block_numbers[index]
                    later = (stretch.times - 1) * period
                    recorder.block = None if number is None else number + later
                    yield index
        recorder.block = None

    def checkpointing(self, index: int) -> Checkpointing:
        """Return how the unit at this index is checkpointed: only blocks are, and no frozen ones."""
        number = self.block_numbers[index]
        if number is None or not self.units[index].output.differentiable:
            return "none"
        if self.training.activation_checkpointing == "selective":
            return "selective"
        every = self.training.checkpoint_every
        if not every or (number + 1) % every:
            return "none"
        return "offloaded" if self.training.offload_activations else "full"

    def forward_parts(self, index: int) -> tuple[Segment, Segment]:
        """Join a unit's forward in two: up to the model's output, and the loss.

        The root's hooks run between the two; only the head's unit has a loss.
        """
        unit, mode = self.units[index], self.checkpointing(index)
        key = (id(unit), mode)
        if key not in self.joined.forwards:
            steps = forward(unit, mode)
            cut = len(steps)
            if unit.kind == "head":
                cut = next((i for i, s in enumerate(steps, 1) if _is_projection(s)), cut)
            loss = self._replacing_logits(segment(steps[cut:]))
            self.joined.forwards[key] = segment(steps[:cut]), loss
        return self.joined.forwards[key]

    def _replacing_logits(self, loss: Segment) -> Segment:
        """Let kept logits of the micro-step before go once those of this one are there."""
        kept = self.workload.kept_logits_bytes
        if not (kept and loss.steps):
            return loss
        batch = self.workload.batch
        casts = batch.widens_logits and batch.itemsize < FP32
        there = len(loss.steps[0].changes) if casts else 0
        changes = (
            *loss.changes[:there],
            Change("loss", KEPT_LOGITS, -kept),
            *loss.changes[there:],
            Change("loss", KEPT_LOGITS, kept),
        )
        return replace(loss, changes=changes)

    def write_forward(self, recorder: Recorder) -> None:
        """Write a forward down in which no parameter has to be gathered."""
        for index in self.walk_forward(recorder):
            for part in self.forward_parts(index):
                recorder.compute("forward", self.owner(index), part)

    def backward_parts(self, index: int) -> tuple[Segment, Segment]:
        """Join a unit's backward in two: the loss down to the model's output, and the rest."""
        unit, mode = self.units[index], self.checkpointing(index)
        key = (id(unit), mode)
        if key not in self.joined.backwards:
            steps = self.backward_steps(index)
            cut = 0
            if unit.kind == "head":
                cut = next((i for i, s in enumerate(steps) if _is_projection(s)), cut)
            self.joined.backwards[key] = segment(steps[:cut]), segment(steps[cut:])
        return self.joined.backwards[key]

    def cached_copies(self) -> Iterator[Change]:
        """Release the weight copies that autocast's cache alone holds: of checkpointed units."""
        for stretch in self.stretches:
            for index in stretch.units:
                if self.checkpointing(index) != "none":
                    copies = cached_copies(self.units[index])
                    size = sum(round_up(copy.bytes) for copy in copies) * stretch.times
                    yield Change("unsharded_parameters", "weight copies", -size)

    def gradient_chunks(self, index: int) -> list[Chunk]:
        """Cut a unit's backward after each operation that completes gradients.

        Strategies that reduce gradients as they arrive act between the chunks.
        """
        unit, mode = self.units[index], self.checkpointing(index)
        key = (id(unit), mode, self.row.divides_gradients)
        if key not in self.joined.chunks:
            self.joined.chunks[key] = list(self._cut(self.backward_steps(index)))
        return self.joined.chunks[key]

    def _cut(self, steps: list[Step]) -> Iterator[Chunk]:
        """Gradients that stay whole are a state of their own, no mere transient."""
        whole = not self.row.divides_gradients
        run: list[Step] = []
        for step in steps:
            run.append(_as_state(step) if whole else step)
            if step.gradients:
                yield segment(run), step.gradients
                run = []
        if run:
            yield segment(run), ()

    def backward_steps(self, index: int) -> list[Step]:
        """List a unit's recomputation, if any, and backward operations."""
        unit, mode = self.units[index], self.checkpointing(index)
        if mode == "none":
            return backward(unit)
        reentrant = self.training.checkpoint_reentrant
        again = recompute(unit, mode, reentrant=reentrant)
        return [*again, *backward(unit, mode, reentrant=reentrant)]


def _as_state(step: Step) -> Step:
    changes = tuple(
        replace(c, category="gradients") if c.category == "unsharded_gradients" else c
        for c in step.changes
    )
    return replace(step, changes=changes)


def _is_projection(step: Step) -> bool:
    return step.operation.kernel == "matmul"


def inputs(plan: Plan) -> list[Change]:
    """List what the loop holds for one micro-step."""
    read = sum(map(round_up, plan.workload.inputs_bytes))
    ids = round_up(plan.workload.batch.tokens * INT64)
    return [Change("other", "inputs", read), Change("other", "labels", ids)]


def inputs_and_buffers(plan: Plan) -> list[Change]:
    """List what every strategy holds throughout.

    Inputs, labels, rotary tables, kept logits, and the scales of quantised weights: those are no
    parameters, so that nothing shards them.
    """
    kept = plan.workload.kept_logits_bytes
    constants = sum(p.constants_bytes * times for p, times in plan.parameters)
    return [
        *([Change("parameters", "quantisation constants", constants)] if constants else []),
        *(inputs(plan) * plan.micro_steps),
        *(Change("other", "buffers", round_up(size)) for size in plan.workload.buffers_bytes),
        *([Change("loss", KEPT_LOGITS, kept)] if kept else []),
    ]
