"""Plans that several charts price at once: one for each strategy and each value of a key."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zeroplan.errors import SpecError
from zeroplan.estimation.hypothetical import hypothetical_notes
from zeroplan.estimation.many import VERDICTS
from zeroplan.estimation.record import Verdict
from zeroplan.hardware import Catalogue, load_catalogue
from zeroplan.records import dataclass
from zeroplan.rows import plain
from zeroplan.search.blocks import Block, blocks
from zeroplan.search.space import Space, space_of
from zeroplan.spec.reading import flatten
from zeroplan.spec.run import Run

__all__ = ["Point", "points", "values_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A plan with the figures that charts show."""

    strategy: str
    run: Run
    """As resolved."""
    micro_batch_size: int
    sequence_length: int
    device_bytes: int
    usable_bytes: int
    verdict: Verdict
    step_seconds: float
    exposed_communication_seconds: float
    tokens_per_second_per_gpu: float
    hypothetical: bool
    """Whether no machine is built like that."""

    @property
    def waiting(self) -> float:
        """Share of the step in which the GPU waits for communication. [1]"""
        return max(0.0, self.exposed_communication_seconds / self.step_seconds)


def values_of(run: Run) -> dict[str, object]:
    """Return what a run sets, by dotted key; what it leaves open is left out."""
    return {key: value for key, value in flatten(plain(run)).items() if value is not None}


def points(values: Mapping[str, object], profiles: Path | None = None) -> list[Point]:
    """Price every combination of values by dotted key, each one or a list of them.

    Raises
    ------
    SpecError
        All combinations are refused, or a key or a value is not known.

    """
    space = space_of(values, profiles=profiles)
    refused: list[str] = []
    found = [point for family in space.families() for point in _of(space, family, refused)]
    if not found:
        raise SpecError(f"nothing to draw; the first reason: {refused[0]}")
    return found


def _of(space: Space, family: list[dict[str, object]], refused: list[str]) -> Iterator[Point]:
    catalogue = load_catalogue(space.profiles)
    for block in blocks(space, family):
        if isinstance(block, Block):
            size = block.figures.verdict.size
            yield from (_point(block, place, catalogue) for place in range(size))
        else:
            refused.append(block.why)


def _point(block: Block, place: int, catalogue: Catalogue) -> Point:
    figures = block.figures
    _, batches, machines = figures.verdict.shape
    batch, machine = place // machines % batches, place % machines
    question = block.machines.questions[machine]

    def at(name: str) -> Any:
        return getattr(figures, name).ravel()[place]

    return Point(
        strategy=question.run.sharding.strategy or "none",
        run=question.run,
        micro_batch_size=int(block.batches.micro_batch_size[batch]),
        sequence_length=int(block.batches.sequence_length[batch]),
        device_bytes=int(at("device_bytes")),
        usable_bytes=int(at("usable_bytes")),
        verdict=VERDICTS[int(at("verdict"))],
        step_seconds=float(at("step_seconds")),
        exposed_communication_seconds=float(at("exposed_communication_seconds")),
        tokens_per_second_per_gpu=float(at("tokens_per_second_per_gpu")),
        hypothetical=bool(
            hypothetical_notes(question.run.cluster, question.gpu, question.wires, catalogue)
        ),
    )
