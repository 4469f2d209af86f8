"""A step of the real framework on processes of this machine: over gloo, or NCCL on its GPUs."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from pickle import dumps, loads
from time import monotonic
from typing import Final

import torch
from torch import multiprocessing

from zeroplan.errors import RunError, ZeroplanError
from zeroplan.records import dataclass
from zeroplan.validate.measurement import Measured, Outcome
from zeroplan.validate.pytorch.environment import fake_group, real_group
from zeroplan.validate.pytorch.gpu import out_of_memory
from zeroplan.validate.pytorch.job import Job, fullest, measured, pretended_rank
from zeroplan.validate.quiet import quiet

__all__ = ["real_step"]

LOOPBACK: Final = "lo"
LOOK_SECONDS: Final = 0.2
"""How often the parent looks after its ranks."""
GRACE_SECONDS: Final = 2
"""What other ranks get to end by themselves when one has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What every process does."""

    job: Job
    ranks: int
    folder: Path
    """Where ranks meet and leave what they saw."""
    parent: int
    """Process that started the ranks."""

    @property
    def processes(self) -> int:
        """How many there are: one, where the other ranks are pretended."""
        return 1 if self.job.pretended else self.ranks


def real_step(job: Job, ranks: int) -> Measured | Outcome:
    """Return what the fullest rank of a real job saw, or how the job ended instead.

    Raises
    ------
    MissingPartError
        The module has no such layer.
    RunError
        There is no folder for what the ranks leave.
    """
    with _folder() as folder:
        task = _Task(job=job, ranks=ranks, folder=Path(folder), parent=os.getpid())
        with _processes(task) as processes:
            reason = _await(processes, task)
        seen = [_left(task, rank) for rank in range(task.processes)]
    broken = next((each for each in seen if isinstance(each, Outcome)), None)
    if broken or reason:
        return broken or Outcome(kind="failed", reason=reason)
    return fullest(each for each in seen if isinstance(each, Measured))


def _folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="zeroplan-", ignore_cleanup_errors=True)
    except OSError as error:
        raise RunError(
            f"no folder for what the processes leave: {error.strerror}; TMPDIR names another."
        ) from None


@contextmanager
def _processes(task: _Task) -> Iterator[multiprocessing.ProcessContext]:
    """Start the ranks and leave none behind, however this ends.

    They are daemons: an interrupt that comes while they start ends them at exit.
    """
    processes = multiprocessing.start_processes(
        _rank, args=(task,), nprocs=task.processes, join=False, daemon=True, start_method="spawn"
    )
    try:
        yield processes
    finally:
        for process in processes.processes:
            process.kill()
        for process in processes.processes:
            process.join()


def _await(processes: multiprocessing.ProcessContext, task: _Task) -> str:
    """Wait for the ranks to end and return why they did not end well; nothing if they did."""
    limit, ranks = task.job.limit_seconds, task.processes
    end = monotonic() + limit
    try:
        while not processes.join(timeout=LOOK_SECONDS, grace_period=GRACE_SECONDS):
            if monotonic() > end:
                return (
                    f"the {ranks} processes did not finish within {limit:g} s; "
                    "a longer --timeout gives them more."
                )
    except multiprocessing.ProcessExitedException as error:
        how = error.signal_name or f"exit code {error.exit_code}"
        by_system = error.signal_name == "SIGKILL"
        hint = "; the system ends a process that way when memory runs out" if by_system else ""
        return f"rank {error.error_index} of {ranks} died ({how}){hint}."
    except multiprocessing.ProcessRaisedException as error:
        *_, reason = str(error).strip().splitlines()
        return f"rank {error.error_index} of {ranks} failed: {reason}"
    return ""


def _rank(rank: int, task: _Task) -> None:
    """Be one rank: run, watch, and leave figures or an error that a user can mend."""
    multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
    if os.getppid() != task.parent:
        return  # it died before this rank asked to die with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its ranks
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // task.processes))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    (task.folder / f"{rank}.seen").write_bytes(dumps(found := _found(rank, task)))
    if isinstance(found, Outcome):
        os._exit(1)  # the others wait for it, and closing the group would wait for them


def _found(rank: int, task: _Task) -> Measured | Outcome | ZeroplanError:
    """Run; an error of PyTorch is told by its first line, since the last may be advice."""
    job = task.job
    try:
        with quiet():
            device = job.device(rank)
            with _group(rank, task):
                return measured(job, device)
    except ZeroplanError as error:
        return error
    except (RuntimeError, MemoryError) as error:
        outcome = out_of_memory(error)
        if outcome is not None:
            return outcome
        told = str(error).partition("\n")[0]
        raise RuntimeError(told) from error


def _group(rank: int, task: _Task) -> AbstractContextManager[None]:
    job = task.job
    if job.pretended:
        return fake_group(task.ranks, pretended_rank(job, task.ranks))
    place = (task.folder / "store").as_uri()
    on_gpus = job.backend == "cuda"
    return real_group(task.ranks, rank, place, job.limit_seconds, on_gpus=on_gpus)


def _left(task: _Task, rank: int) -> Measured | Outcome | None:
    """Return what a rank left, if it came that far."""
    path = task.folder / f"{rank}.seen"
    if not path.exists():
        return None
    found: Measured | Outcome | ZeroplanError = loads(path.read_bytes())  # noqa: S301  # our own
    if isinstance(found, ZeroplanError):
        raise found
    return found
