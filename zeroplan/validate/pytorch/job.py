"""What one rank of a job does, from its model to its figures, on a GPU or on the CPU."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.records import dataclass, replace
from zeroplan.schedule.plan import Plan
from zeroplan.spec.run import Run
from zeroplan.validate.measurement import Measured, MeasuredTime, spread
from zeroplan.validate.pytorch.benches import micro_benches
from zeroplan.validate.pytorch.environment import by_reference_counts, fake_group
from zeroplan.validate.pytorch.gpu import figures
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.optimizers import fullest_rank
from zeroplan.validate.pytorch.pretend import with_single_copies
from zeroplan.validate.pytorch.setup import make_setup, make_subject
from zeroplan.validate.pytorch.step import observe_job, step_seconds
from zeroplan.validate.record import PHASES, Backend, ModelClass

__all__ = ["Job", "fullest", "measured", "pretended_rank"]

FUSED: Final = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Kernels that a spec's `attention` can mean; cuDNN's keeps other tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every rank does."""

    run: Run
    backend: Backend
    model_class: ModelClass
    profiles: Path | None
    limit_seconds: float
    pretended: bool = False
    """Whether this is one rank whose others are pretended."""
    micro_benches: bool = False
    tells: bool = False
    """Whether the first rank says on standard error what it is doing."""

    def device(self, local_rank: int) -> torch.device:
        """Return the device of a process, and make it the process's own.

        A launcher may let each process of a node see one GPU alone.
        """
        if self.backend != "cuda":
            return torch.device("cpu")
        index = local_rank % torch.cuda.device_count()
        torch.cuda.set_device(index)
        return torch.device("cuda", index)

    def tell(self, rank: int, stage: str) -> None:
        """Say what is being done."""
        if self.tells and rank == 0:
            sys.stderr.write(f"{stage}\n")
            sys.stderr.flush()


def measured(job: Job, device: torch.device) -> Measured:
    """Run the steps of a job whose process group is there, and return what this rank saw."""
    question = resolve(job.run, job.profiles)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    seen = _steps(job, question, plan, device)
    if not job.micro_benches:
        return seen
    job.tell(dist.get_rank(), "micro-benches")
    benches = micro_benches(plan, device, collectives=not job.pretended)
    return replace(seen, micro_benches=benches)


def _steps(job: Job, question: Question, plan: Plan, device: torch.device) -> Measured:
    """Build, wrap, warm up and measure."""
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    job.tell(rank, f"building {question.run.model.source}, rank {rank} of {ranks} on {device.type}")
    subject = make_subject(question, plan, job.model_class)
    ledger = None if device.type == "cuda" else Ledger()
    if plan.training.compute_dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    with subject.conditions(), sdpa_kernel(FUSED), by_reference_counts():
        with _counting(ledger):
            with device:
                setup = make_setup(subject, plan, None, ledger)
            if job.pretended:
                with_single_copies(setup.module)
            if ledger is None:
                return figures(setup, device, partial(job.tell, rank), alone=job.pretended)
            job.tell(rank, "watched steps")
            seen = observe_job(setup, ledger)
        job.tell(rank, "timed steps")
        seconds = step_seconds(setup)
    time = MeasuredTime(step_seconds=spread(seconds))
    return Measured(step=replace(seen, step_seconds=seconds), time=time)


def pretended_rank(job: Job, ranks: int) -> int:
    """Return the rank that runs: the one with the largest states."""
    question = resolve(job.run, job.profiles)
    (row,) = question.strategies
    if row.framework != "torch-zero1":
        return 0
    plan = plan_for(question, row, {})
    with fake_group(ranks, 0):
        return fullest_rank(make_subject(question, plan, job.model_class).module, plan)


def fullest(seen: Iterable[Measured]) -> Measured:
    """Return what the rank with the highest peak saw."""
    return max(
        seen,
        key=lambda each: max(getattr(each.step.peak_by_phase_bytes, phase) for phase in PHASES),
    )


@contextmanager
def _counting(ledger: Ledger | None) -> Iterator[None]:
    """Let a ledger count; a GPU's allocator counts by itself."""
    if ledger is None:
        yield
        return
    with ledger, ledger.following_resizes():
        yield
