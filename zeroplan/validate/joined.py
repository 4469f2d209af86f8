"""The place of this process in a job that a launcher started: torchrun, srun or mpirun."""

import re
from collections.abc import Mapping
from os import environ
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass

__all__ = ["Seat", "seat"]

LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
)
"""Variables of rank, world, rank on the node and ranks of a node. A batch script of Slurm has no
step: what it starts without srun stands alone."""

PORTS: Final = (20_000, 20_000)
"""First port and how many, of which a Slurm job takes the one that its number says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Who this process is, and where its job meets."""

    rank: int
    ranks: int
    local_rank: int
    ranks_per_node: int
    host: str
    port: int

    @property
    def leads(self) -> bool:
        """Whether it is the one that prints."""
        return self.rank == 0


def seat(variables: Mapping[str, str] = environ) -> Seat | None:
    """Return the seat that a launcher gave this process; None where it stands alone.

    Raises
    ------
    SpecError
        A variable of a launcher is no number, or there is nowhere to meet.
    """
    for names in LAUNCHERS:
        rank, ranks, local, per_node = (variables.get(name) for name in names)
        if rank is None or ranks is None or ranks == "1":
            continue
        each = re.match(r"\d*", per_node or "")  # Slurm says "4(x2)": four on each of two
        return Seat(
            rank=_whole(names[0], rank),
            ranks=_whole(names[1], ranks),
            local_rank=_whole(names[2], local or "0"),
            ranks_per_node=_whole(names[3], (each and each[0]) or ranks),
            host=_host(variables),
            port=_port(variables),
        )
    return None


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise SpecError(f"{name} = {text!r}: a launcher sets a whole number there.")
    return int(text)


def _host(variables: Mapping[str, str]) -> str:
    """Return MASTER_ADDR, else the first node of a Slurm step ("gpu[07-09,12],login")."""
    if "MASTER_ADDR" in variables:
        return variables["MASTER_ADDR"]
    nodes = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST", "")
    found = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\])?([^,\[]*)", nodes)
    if found is None:
        raise SpecError("MASTER_ADDR is not set: name the host of rank 0, where the job meets.")
    return "".join(part or "" for part in found.groups())


def _port(variables: Mapping[str, str]) -> int:
    if "MASTER_PORT" in variables:
        return _whole("MASTER_PORT", variables["MASTER_PORT"])
    first, count = PORTS
    job = variables.get("SLURM_JOB_ID", "0")
    return first + (int(job) % count if job.isdecimal() else 0)
