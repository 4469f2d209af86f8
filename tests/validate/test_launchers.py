"""Who a process is in a job that a launcher started."""

import pytest

from zeroplan.errors import SpecError
from zeroplan.validate.joined import seat

TORCHRUN = {
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29400",
}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "1234567",
}


def test_torchrun_says_who_a_process_is() -> None:
    found = seat(TORCHRUN)
    assert found is not None
    assert (found.rank, found.ranks, found.local_rank, found.ranks_per_node) == (9, 16, 1, 8)
    assert (found.host, found.port, found.leads) == ("10.0.0.1", 29400, False)


def test_srun_says_it_too_and_the_job_meets_at_its_first_node() -> None:
    found = seat(SRUN)
    assert found is not None
    assert (found.rank, found.ranks, found.local_rank, found.ranks_per_node) == (5, 8, 1, 4)
    assert found.host == "gpu07"
    assert 20_000 <= found.port < 40_000


def test_all_ranks_of_a_slurm_job_meet_at_one_port() -> None:
    seats = [seat({**SRUN, "SLURM_PROCID": str(rank)}) for rank in range(8)]
    assert len({(each.host, each.port) for each in seats if each}) == 1
    assert [each.leads for each in seats if each] == [True] + [False] * 7


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node-a", "node-a"),
        ("node-a,node-b", "node-a"),
        ("n[1-4,9]", "n1"),
        ("rack2-[003,005]-ib", "rack2-003-ib"),
        ("a[01-02],b7", "a01"),
    ],
)
def test_the_first_node_of_a_list_is_found(nodes: str, first: str) -> None:
    found = seat({**SRUN, "SLURM_STEP_NODELIST": nodes})
    assert found is not None
    assert found.host == first


def test_mpirun_says_it_and_needs_a_place_to_meet() -> None:
    mpirun = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    with pytest.raises(SpecError, match="MASTER_ADDR"):
        seat(mpirun)
    found = seat({**mpirun, "MASTER_ADDR": "here", "MASTER_PORT": "1234"})
    assert found is not None
    assert (found.rank, found.ranks, found.local_rank) == (1, 2, 0)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "gpu07"},
        {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"},
    ],
    ids=["a shell", "a batch script outside of srun", "a world of one"],
)
def test_a_process_that_stands_alone_has_no_seat(variables: dict[str, str]) -> None:
    assert seat(variables) is None


def test_a_number_that_is_none_is_told() -> None:
    with pytest.raises(SpecError, match="LOCAL_RANK = 'one'"):
        seat({**TORCHRUN, "LOCAL_RANK": "one"})
