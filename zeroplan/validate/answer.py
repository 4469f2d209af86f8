"""The answer to "is the prediction true?": a real run beside it."""

from pathlib import Path
from typing import Any, Final

from zeroplan.errors import UsageError
from zeroplan.records import replace
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec
from zeroplan.spec.words import Backend as Library
from zeroplan.validate.comparing import compare
from zeroplan.validate.measurement import RunRecord
from zeroplan.validate.measuring import Asked, measure
from zeroplan.validate.record import Backend, ModelClass
from zeroplan.validate.validation import Validation

__all__ = ["recorded", "validate"]

DEFAULT_LIMIT_SECONDS: Final = 600.0

LIBRARIES: Final[dict[Backend, Library]] = {"cpu": "gloo", "cuda": "nccl"}
"""What the ranks of a real job talk through."""


def validate(
    run: Run | None = None,
    *,
    tolerance: float | None = None,
    profiles: Path | None = None,
    **keys: Any,
) -> Validation:
    """Run training steps of the real framework and lay them beside the prediction.

    Parameters
    ----------
    run
        The question; without one it is made of the keys. Without a strategy it is FSDP2.
    tolerance
        Largest error of a peak or a collective that counts as inside; without one 0.01, and 0.02 on
        a GPU. [1]
    profiles
        Folder whose hardware profiles come before the shipped ones.
    **keys
        What `recorded` takes.

    Raises
    ------
    SpecError
        The question names something unknown or contradictory.
    MissingPartError
        A package or a GPU is not there, or the model or strategy cannot be run.
    RunError
        A process died or took too long.
    """
    return compare(recorded(run, profiles=profiles, **keys), tolerance=tolerance, profiles=profiles)


def recorded(  # all by name
    run: Run | None = None,
    *,
    backend: Backend = "fake",
    model_class: ModelClass | None = None,
    timeout: float = DEFAULT_LIMIT_SECONDS,
    profiles: Path | None = None,
    pretend_gpus: int | None = None,
    micro_benches: bool = False,
    tells: bool = False,
    **keys: object,
) -> RunRecord:
    """Run training steps of the real framework and return their record, also where they failed.

    Parameters
    ----------
    run
        The question; without one it is made of the keys. Without a strategy it is FSDP2.
    backend
        fake: the real framework on tensors without data, at the run's own world size;
        cpu: as many processes of this machine as the run has GPUs, over gloo;
        cuda: one process for each GPU, over NCCL. Under torchrun, srun or mpirun this process is one
        rank of the job of the last two. Either sets `cluster.backend`.
    model_class
        own: zeroplan's module for the architecture; transformers: the class of its `model_type`.
        Without one it is zeroplan's own, and transformers' where that has no such layer.
    timeout
        How long processes may take before they are ended. [s]
    profiles
        Folder whose hardware profiles come before the shipped ones.
    pretend_gpus
        Run one rank of so many, and pretend the others: true memory and computing, no communication.
    micro_benches
        Time collectives, matrix products and copies by themselves too.
    tells
        Say on standard error what is being done.
    **keys
        Keys of the spec file by name; `model` is the model's source.

    Raises
    ------
    SpecError
        The question names something unknown or contradictory.
    MissingPartError
        A package or a GPU is not there, or the model or strategy cannot be run.
    UsageError
        Ranks are to be pretended where none is real.
    """
    asked = load_spec(**keys) if run is None else run
    if asked.sharding.strategy is None:
        asked = replace(asked, sharding=replace(asked.sharding, strategy="fsdp2"))
    if backend == "fake" and (pretend_gpus or micro_benches):
        raise UsageError(
            "fake tensors have no values: pretended GPUs and micro-benches need --backend cuda or cpu."
        )
    if backend in LIBRARIES:  # what the step runs on decides, whatever the spec says
        asked = replace(asked, cluster=replace(asked.cluster, backend=LIBRARIES[backend]))
    if pretend_gpus:
        asked = replace(asked, cluster=replace(asked.cluster, gpus=pretend_gpus))
    return measure(
        Asked(
            run=asked,
            backend=backend,
            model_class=model_class,
            limit_seconds=timeout,
            profiles=profiles,
            pretended=pretend_gpus is not None,
            micro_benches=micro_benches,
            tells=tells,
        )
    )
