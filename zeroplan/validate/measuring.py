"""One real step, or a job of many, as a record."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from zeroplan.errors import MissingPartError, SpecError
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.naming import gpu_of
from zeroplan.memory.walk import peaks
from zeroplan.records import dataclass, replace
from zeroplan.schedule import script
from zeroplan.schedule.plan import Plan
from zeroplan.spec.models import model_keys
from zeroplan.spec.presets import is_preset
from zeroplan.spec.run import Run
from zeroplan.spec.sizes import is_size
from zeroplan.validate.joined import Seat, seat
from zeroplan.validate.machine import machine, versions
from zeroplan.validate.measurement import Machine, Measured, Outcome, RunRecord
from zeroplan.validate.quiet import quiet
from zeroplan.validate.record import Backend, ModelClass
from zeroplan.validate.refusals import refuse, refuse_gpus, refuse_memory

__all__ = ["Asked", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be run, and how."""

    run: Run
    backend: Backend
    model_class: ModelClass | None
    """Without one it is zeroplan's own, and transformers' where that has no such layer."""
    limit_seconds: float
    profiles: Path | None
    pretended: bool
    micro_benches: bool
    tells: bool


def measure(asked: Asked) -> RunRecord:
    """Run steps of the real framework and record what they showed, or how they ended.

    Raises
    ------
    SpecError
        The question names something unknown or contradictory.
    MissingPartError
        A package or a GPU is not there, or the model or strategy cannot be run.
    RunError
        The processes of a launcher did not meet.
    """
    place = None if asked.backend == "fake" or asked.pretended else seat()
    if place is not None:
        asked = replace(asked, run=_seated(asked.run, place))
    question = resolve(asked.run, asked.profiles)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    able = partial(
        refuse, question.run, row, backend=asked.backend, alone=asked.pretended or place is not None
    )
    able(asked.model_class or "own")
    _refuse_machine(asked, plan, place)
    step = partial(_run, asked, question, plan, place)
    (outcome, measured), used = _ended(step, able, asked.model_class)
    here, run, notes = _machine(asked, question.run)
    return RunRecord(
        inputs=run,
        model_file=_model_file(run.model.source),
        backend=asked.backend,
        pretended=asked.pretended,
        model_class=used,
        machine=here,
        versions=_versions(asked.backend, used),
        date=datetime.now(UTC).date().isoformat(),
        notes=notes,
        outcome=outcome,
        measured=measured,
    )


def _seated(run: Run, place: Seat) -> Run:
    """Return the run on as many GPUs as the launcher started processes."""
    per_node = min(place.ranks, place.ranks_per_node)
    return replace(run, cluster=replace(run.cluster, gpus=place.ranks, gpus_per_node=per_node))


def _refuse_machine(asked: Asked, plan: Plan, place: Seat | None) -> None:
    """Say so where the machine has too little memory or too few GPUs."""
    ranks = 1 if asked.pretended else int(plan.groups.world.ranks)
    if asked.backend == "cpu" and place is None:
        found = peaks(script(plan))
        refuse_memory(ranks, int(max(peak.bytes for peak in found.values())))
    if asked.backend == "cuda":
        from torch.cuda import device_count  # noqa: PLC0415  # loads torch

        here = ranks if place is None else 1
        refuse_gpus(here, device_count(), ranks=int(plan.groups.world.ranks))


def _ended(
    step: Callable[[ModelClass], tuple[Outcome, Measured | None]],
    able: Callable[[ModelClass], None],
    model_class: ModelClass | None,
) -> tuple[tuple[Outcome, Measured | None], ModelClass]:
    if model_class is not None:
        return step(model_class), model_class
    try:
        return step("own"), "own"
    except MissingPartError as lacking:
        try:
            able("transformers")
            return step("transformers"), "transformers"
        except MissingPartError as also:
            raise MissingPartError(f"{lacking}; {also}") from also


def _run(
    asked: Asked, question: Question, plan: Plan, place: Seat | None, model_class: ModelClass
) -> tuple[Outcome, Measured | None]:
    with quiet():  # PyTorch warns of itself when its parts are imported, too
        if asked.backend == "fake":
            from zeroplan.validate.pytorch.fake import fake_step  # noqa: PLC0415  # loads torch

            return Outcome(kind="ok"), Measured(step=fake_step(question, plan, model_class))
        from zeroplan.validate.pytorch.job import Job  # noqa: PLC0415  # the same
        from zeroplan.validate.pytorch.joining import joined_step  # noqa: PLC0415
        from zeroplan.validate.pytorch.real import real_step  # noqa: PLC0415

        job = Job(
            run=question.run,
            backend=asked.backend,
            model_class=model_class,
            profiles=asked.profiles,
            limit_seconds=asked.limit_seconds,
            pretended=asked.pretended,
            micro_benches=asked.micro_benches,
            tells=asked.tells,
        )
        ranks = int(plan.groups.world.ranks)
        found = real_step(job, ranks) if place is None else joined_step(job, place)
    return (found, None) if isinstance(found, Outcome) else (Outcome(kind="ok"), found)


def _machine(asked: Asked, run: Run) -> tuple[Machine, Run, tuple[str, ...]]:
    """Describe the machine when nothing runs any more: to ask a GPU for its name takes its memory.

    A run that names no GPU is the run on the one that was there.
    """
    if asked.backend != "cuda":
        return machine(), run, ()
    from zeroplan.validate.pytorch.gpu import machine_with_gpu  # noqa: PLC0415  # loads torch

    here = machine_with_gpu()
    if asked.run.cluster.gpu is not None or asked.run.cluster.node is not None:
        return here, run, ()
    try:
        name = gpu_of(here.gpu or "", load_catalogue(asked.profiles)).id
    except SpecError as error:
        return here, run, (f"Compared with {run.cluster.gpu}: {error}",)
    open_again = replace(asked.run.cluster, gpu=name)
    return here, resolve(replace(run, cluster=open_again), asked.profiles).run, ()


def _model_file(source: str) -> dict[str, Any] | None:
    word = source.strip().lower()
    return None if is_size(word) or is_preset(word) else dict(model_keys(source))


def _versions(backend: Backend, model_class: ModelClass) -> dict[str, str]:
    found = versions("torch", *(() if model_class == "own" else ("transformers",)))
    if backend != "cuda":
        return found
    from zeroplan.validate.pytorch.gpu import gpu_versions  # noqa: PLC0415  # loads torch

    return found | gpu_versions()
