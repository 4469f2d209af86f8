"""A run's record beside today's prediction, here or elsewhere, without torch."""

from pathlib import Path
from typing import Final

from zeroplan.errors import RunError
from zeroplan.estimation.answer import answer, plan_for
from zeroplan.estimation.communication import nccl_communicators
from zeroplan.estimation.record import Time
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.memory.device import device_memory
from zeroplan.memory.walk import trace
from zeroplan.schedule import script
from zeroplan.spec.applies import ignored_keys
from zeroplan.spec.models import architecture_of
from zeroplan.validate.differences import beyond_tensors, differences, times
from zeroplan.validate.measurement import RunRecord
from zeroplan.validate.prediction import predicted
from zeroplan.validate.record import ModelClass
from zeroplan.validate.validation import Validation

__all__ = ["DEFAULT_TOLERANCE", "GPU_TOLERANCE", "compare", "question_of"]

DEFAULT_TOLERANCE: Final = 0.01
GPU_TOLERANCE: Final = 0.02
"""Largest error that counts as inside: of tensors' bytes, and of an allocator's blocks. [1]"""


def compare(
    record: RunRecord, *, tolerance: float | None = None, profiles: Path | None = None
) -> Validation:
    """Lay a run beside the prediction for it.

    Parameters
    ----------
    record
        What ran and what it showed.
    tolerance
        Largest error of a peak or a collective that counts as inside; without one 0.01, and 0.02 on
        a GPU. [1]
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    RunError
        The run failed: there is nothing to compare.
    SpecError
        Today's zeroplan does not know what the run names.
    """
    if record.outcome.kind == "failed":
        raise RunError(record.outcome.reason)
    question = question_of(record, profiles)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    step = script(plan)
    on_gpu = record.backend == "cuda"
    found, communicators = trace(step), nccl_communicators(question, plan.groups)
    device = device_memory(found.highest.bytes, found.pools_bytes, question.gpu, communicators)
    workspaces = int(device.workspaces_bytes) if on_gpu else 0
    expected = predicted(step, updates=plan.runs_before_update, workspaces_bytes=workspaces)
    seen = record.measured
    rows = () if seen is None else differences(expected, seen.step)
    if seen is not None and on_gpu:
        alone = record.pretended
        timed = times(_time(question), seen, alone=alone)
        rows = (*beyond_tensors(device, seen, alone=alone), *timed, *rows)
    usual = GPU_TOLERANCE if on_gpu else DEFAULT_TOLERANCE
    return Validation(
        record=record,
        prediction=expected,
        predicted_verdict=device.verdict,
        differences=rows,
        tolerance=usual if tolerance is None else tolerance,
        notes=(
            *question.notes,
            *ignored_keys(question.run, [row.strategy]),
            *record.notes,
            *_class_notes(record.model_class),
        ),
    )


def question_of(record: RunRecord, profiles: Path | None) -> Question:
    """Ask what ran; a model whose file is elsewhere is read from the record."""
    if record.model_file is None:
        return resolve(record.inputs, profiles)
    name = Path(record.inputs.model.source).stem
    model = architecture_of(record.model_file, record.inputs.model.source, name)
    return resolve(record.inputs, profiles, architecture=model)


def _time(question: Question) -> Time:
    (estimate,) = answer(question).estimates
    return estimate.time


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
