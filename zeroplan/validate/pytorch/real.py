"""A step of the real framework on processes of this machine, which meet over gloo."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import cpu_count, getpid, getppid
from pathlib import Path
from pickle import dumps, loads
from time import monotonic
from typing import Final

import torch
from torch import multiprocessing

from zeroplan.errors import RunError, ZeroplanError
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.records import dataclass, replace
from zeroplan.spec.run import Run
from zeroplan.validate.pytorch.environment import by_reference_counts, gloo_group
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.setup import make_setup, make_subject
from zeroplan.validate.pytorch.step import observe_job, step_seconds
from zeroplan.validate.quiet import quiet
from zeroplan.validate.record import PHASES, ModelClass, Observation

__all__ = ["real_step"]

LOOK_SECONDS: Final = 0.2
"""How often the parent looks after its ranks."""
GRACE_SECONDS: Final = 2
"""What other ranks get to end by themselves when one has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What every rank does."""

    run: Run
    model_class: ModelClass
    profiles: Path | None
    ranks: int
    folder: Path
    """Where ranks meet and leave what they saw."""
    limit_seconds: float
    parent: int
    """Process that started the ranks."""


def real_step(
    run: Run,
    ranks: int,
    model_class: ModelClass,
    *,
    profiles: Path | None,
    limit_seconds: float,
) -> Observation:
    """Return what the fullest rank of a real job saw.

    Raises
    ------
    MissingPartError
        The module has no such layer, or PyTorch refuses the combination.
    RunError
        A rank died, or the job took longer than it may; no process is left.
    """
    with tempfile.TemporaryDirectory(prefix="zeroplan-") as folder:
        task = _Task(
            run=run,
            model_class=model_class,
            profiles=profiles,
            ranks=ranks,
            folder=Path(folder),
            limit_seconds=limit_seconds,
            parent=getpid(),
        )
        with _processes(task) as job:
            _await(job, task)
        seen = [_result(task, rank) for rank in range(ranks)]
    return max(seen, key=_highest)


def _highest(seen: Observation) -> int:
    peaks = seen.peak_by_phase_bytes
    return max(getattr(peaks, phase) for phase in PHASES)


@contextmanager
def _processes(task: _Task) -> Iterator[multiprocessing.ProcessContext]:
    """Start the ranks and leave none behind, however this ends.

    They are daemons: an interrupt that comes while they start ends them at exit.
    """
    job = multiprocessing.start_processes(
        _rank, args=(task,), nprocs=task.ranks, join=False, daemon=True, start_method="spawn"
    )
    try:
        yield job
    finally:
        for process in job.processes:
            process.kill()
        for process in job.processes:
            process.join()


def _await(job: multiprocessing.ProcessContext, task: _Task) -> None:
    end = monotonic() + task.limit_seconds
    try:
        while not job.join(timeout=LOOK_SECONDS, grace_period=GRACE_SECONDS):
            if monotonic() > end:
                raise RunError(
                    f"the {task.ranks} processes did not finish within "
                    f"{task.limit_seconds:g} s; a longer --timeout gives them more."
                )
    except multiprocessing.ProcessExitedException as error:
        how = error.signal_name or f"exit code {error.exit_code}"
        raise RunError(
            f"rank {error.error_index} of {task.ranks} died ({how}); the system ends a process "
            "that way when memory runs out."
        ) from None
    except multiprocessing.ProcessRaisedException as error:
        *_, reason = str(error).strip().splitlines()
        raise RunError(f"rank {error.error_index} of {task.ranks} failed: {reason}") from None


def _rank(rank: int, task: _Task) -> None:
    """Be one rank: run, watch, and leave an observation or an error that a user can mend."""
    multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
    if getppid() != task.parent:
        return  # it died before this rank asked to die with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its ranks
    torch.set_num_threads(max(1, (cpu_count() or 1) // task.ranks))
    found: Observation | ZeroplanError
    with quiet():
        try:
            found = _observed(rank, task)
        except ZeroplanError as error:
            found = error
    (task.folder / f"{rank}.seen").write_bytes(dumps(found))


def _observed(rank: int, task: _Task) -> Observation:
    question = resolve(task.run, task.profiles)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    subject, ledger = make_subject(question, plan, task.model_class), Ledger()
    store = task.folder / "store"
    with gloo_group(task.ranks, rank, store, task.limit_seconds), subject.conditions():
        with by_reference_counts(), ledger, ledger.following_resizes():
            setup = make_setup(subject, plan, None, ledger)
            seen = observe_job(setup, ledger)
        return replace(seen, step_seconds=step_seconds(setup))


def _result(task: _Task, rank: int) -> Observation:
    found: Observation | ZeroplanError = loads((task.folder / f"{rank}.seen").read_bytes())  # noqa: S301  # our own
    if isinstance(found, ZeroplanError):
        raise found
    return found
