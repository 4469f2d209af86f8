"""The answer to "is the prediction true?": one real step beside it."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from zeroplan.errors import MissingPartError
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.records import replace
from zeroplan.schedule import script
from zeroplan.schedule.plan import Plan
from zeroplan.spec.applies import ignored_keys
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec
from zeroplan.validate.differences import differences
from zeroplan.validate.prediction import predicted
from zeroplan.validate.quiet import quiet
from zeroplan.validate.record import PHASES, Backend, ModelClass, Observation, Validation
from zeroplan.validate.refusals import refuse, refuse_memory

__all__ = ["validate"]

DEFAULT_TOLERANCE: Final = 0.01
DEFAULT_LIMIT_SECONDS: Final = 600.0


def validate(
    run: Run | None = None,
    *,
    backend: Backend = "fake",
    model_class: ModelClass | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    timeout: float = DEFAULT_LIMIT_SECONDS,
    profiles: Path | None = None,
    **keys: object,
) -> Validation:
    """Run one training step of the real framework and lay it beside the prediction.

    Parameters
    ----------
    run
        The question; without one it is made of the keys. Without a strategy it is FSDP2.
    backend
        fake: the real framework on tensors without data, at the run's own world size;
        cpu: as many processes of this machine as the run has GPUs, over gloo, which then is
        `cluster.backend`.
    model_class
        own: zeroplan's module for the architecture; transformers: the class of its `model_type`.
        Without one it is zeroplan's own, and transformers' where that has no such layer.
    tolerance
        Largest error of a peak or a collective that counts as inside. [1]
    timeout
        How long processes may take before they are ended. [s]
    profiles
        Folder whose hardware profiles come before the shipped ones.
    **keys
        Keys of the spec file by name; `model` is the model's source.

    Raises
    ------
    SpecError
        The question names something unknown or contradictory.
    MissingPartError
        A package is not installed, or the model or strategy cannot be run.
    RunError
        A process died or took too long.
    """
    asked = load_spec(**keys) if run is None else run
    if asked.sharding.strategy is None:
        asked = replace(asked, sharding=replace(asked.sharding, strategy="fsdp2"))
    if backend == "cpu":  # what the step runs on decides, whatever the spec says
        asked = replace(asked, cluster=replace(asked.cluster, backend="gloo"))
    question = resolve(asked, profiles)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    able = partial(refuse, question.run, row, backend=backend)
    able(model_class or "own")
    prediction = predicted(script(plan), updates=plan.runs_before_update)
    if backend == "cpu":
        peaks = prediction.peak_by_phase_bytes
        refuse_memory(int(plan.groups.world.ranks), max(getattr(peaks, p) for p in PHASES))
    step = partial(_run, question, plan, backend=backend, profiles=profiles, limit_seconds=timeout)
    truth, used = _measured(step, able, model_class)
    return Validation(
        inputs=question.run,
        backend=backend,
        model_class=used,
        versions=_versions(used),
        tolerance=tolerance,
        notes=(*question.notes, *ignored_keys(question.run, [row.strategy]), *_class_notes(used)),
        prediction=prediction,
        truth=truth,
        differences=differences(prediction, truth),
    )


def _class_notes(used: ModelClass) -> tuple[str, ...]:
    """Say what a class of transformers does that no prediction for training code knows."""
    if used == "own":
        return ()
    told = (
        "The class holds the embeddings' rows in a variable through all of forward, which the "
        "prediction leaves out, and makes its rotary tables anew in each step, which the prediction "
        "holds throughout."
    )
    return (told,)


def _measured(
    step: Callable[[ModelClass], Observation],
    able: Callable[[ModelClass], None],
    model_class: ModelClass | None,
) -> tuple[Observation, ModelClass]:
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
    question: Question,
    plan: Plan,
    model_class: ModelClass,
    *,
    backend: Backend,
    profiles: Path | None,
    limit_seconds: float,
) -> Observation:
    with quiet():
        if backend == "fake":
            from zeroplan.validate.pytorch.fake import fake_step  # noqa: PLC0415  # imports torch

            return fake_step(question, plan, model_class)
        from zeroplan.validate.pytorch.real import real_step  # noqa: PLC0415  # the same

        ranks = int(plan.groups.world.ranks)
        return real_step(
            question.run, ranks, model_class, profiles=profiles, limit_seconds=limit_seconds
        )


def _versions(model_class: ModelClass) -> tuple[tuple[str, str], ...]:
    packages = ("torch",) if model_class == "own" else ("torch", "transformers")
    return tuple((package, version(package)) for package in packages)
