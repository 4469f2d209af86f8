"""A rank of a job that a launcher started: torchrun, srun or mpirun."""

import os
import sys
from threading import Timer

import torch
import torch.distributed as dist

from zeroplan.errors import RunError
from zeroplan.validate.joined import Seat
from zeroplan.validate.measurement import Measured, Outcome
from zeroplan.validate.pytorch.environment import MET, real_group
from zeroplan.validate.pytorch.gpu import out_of_memory
from zeroplan.validate.pytorch.job import Job, fullest, measured

__all__ = ["joined_step"]


def joined_step(job: Job, seat: Seat) -> Measured | Outcome:
    """Run as one rank; every rank returns what the fullest saw.

    Raises
    ------
    RunError
        The ranks did not meet.
    """
    os.environ.setdefault("MASTER_ADDR", seat.host)
    os.environ.setdefault("MASTER_PORT", str(seat.port))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // seat.ranks_per_node))
    watchdog = Timer(job.limit_seconds, _give_up, (job, seat))
    watchdog.daemon = True
    watchdog.start()
    try:
        return _run(job, seat)
    except (RuntimeError, MemoryError) as error:
        told = str(error).partition("\n")[0]
        failed = Outcome(kind="failed", reason=f"rank {seat.rank} of {seat.ranks} failed: {told}")
        return out_of_memory(error) or failed
    finally:
        watchdog.cancel()


def _run(job: Job, seat: Seat) -> Measured:
    device = job.device(seat.local_rank)
    limit, on_gpus = job.limit_seconds, device.type == "cuda"
    with real_group(seat.ranks, seat.rank, MET, limit, on_gpus=on_gpus):
        everyone: list[Measured | None] = [None] * seat.ranks
        dist.all_gather_object(everyone, measured(job, device))
    return fullest(each for each in everyone if each is not None)


def _give_up(job: Job, seat: Seat) -> None:
    """End this process, whatever it waits for."""
    sys.stderr.write(
        f"zeroplan: rank {seat.rank} of {seat.ranks} did not finish within {job.limit_seconds:g} s; "
        "a longer --timeout gives it more.\n"
    )
    sys.stderr.flush()
    os._exit(RunError.exit_code)
