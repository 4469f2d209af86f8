"""A plan's script read as an observer of the real step would see it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile

from zeroplan.estimation.answer import moment_name
from zeroplan.estimation.record import PhasePeaks
from zeroplan.memory.walk import peak_before_update, peaks
from zeroplan.schedule.events import Script
from zeroplan.units import Size
from zeroplan.validate.record import PHASES, Calls, Held, Observation, Phase
from zeroplan.workload.changes import Change

__all__ = ["predicted"]


def predicted(script: Script, *, updates: bool, workspaces_bytes: int = 0) -> Observation:
    """Return what a step should show that may end in an update of the parameters.

    Workspaces live throughout, where the observer is a GPU's allocator.
    """
    found = peaks(script)
    before = peak_before_update(script, found) if updates else None
    highest = {phase: found[phase].bytes + workspaces_bytes for phase in PHASES}
    return Observation(
        peak_by_phase_bytes=PhasePeaks(**highest),
        moments=tuple(moment_name(found[phase]) for phase in PHASES),
        peak_before_update_bytes=before,
        held_bytes=_held(script),
        collectives=tuple(_collectives(script)),
        step_seconds=(),
    )


def _held(script: Script) -> Held:
    resident: Counter[str] = Counter()
    for change in script.resident:
        resident[change.category] += change.bytes
    forward = takewhile(lambda pair: pair[0].phase == "forward", script.unrolled())
    before_update = sum(
        times * _net(event.changes) for event, times in script.calls() if event.phase != "optimizer"
    )
    return Held(
        parameters=resident["parameters"] + resident["unsharded_parameters"],
        optimizer=resident["optimizer"],
        inputs_and_buffers=resident["other"] + resident["loss"],
        after_forward=sum(_net(event.changes) for event, _ in forward),
        gradients=resident["gradients"] + resident["unsharded_parameters"] + before_update,
    )


def _net(changes: Iterable[Change]) -> Size:
    return sum(change.bytes for change in changes)


def _collectives(script: Script) -> Iterator[Calls]:
    sums: dict[tuple[str, Phase], list[int]] = {}
    for event, times in script.calls():
        call = event.collective
        if call is not None:
            total = sums.setdefault((call.name, event.phase), [0, 0, 0])
            for index, amount in enumerate((1, call.input_bytes, call.output_bytes)):
                total[index] += times * amount
    for (name, phase), (count, given, made) in sums.items():
        yield Calls(name=name, phase=phase, count=count, input_bytes=given, output_bytes=made)
