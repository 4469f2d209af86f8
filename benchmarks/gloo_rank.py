"""One rank of the jobs that `slow_link.py` and `gloo_loopback.py` run.

    python benchmarks/gloo_rank.py TASK.json RANK

It leaves what it saw in RANK.json beside the task: collectives over message sizes, and steps of
each strategy with the other ranks and, in a group whose collectives return at once, without them.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from veth import sent

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.rows import plain
from zeroplan.spec.toml import load_spec
from zeroplan.validate.pytorch.environment import by_reference_counts, fake_group
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.setup import make_setup, make_subject
from zeroplan.validate.pytorch.step import Setup, observe_job, step_seconds

HEADERS = 66
"""Of a packet: Ethernet 14, IP 20, TCP with timestamps 32. [B]"""


def collectives(sizes: list[int], times: int) -> dict[str, list[float]]:
    """Time each collective over message sizes, by the slowest rank. [s]"""
    ranks, found = dist.get_world_size(), {}
    for size in sizes:
        whole = torch.ones(size // 4)
        part = torch.ones(size // 4 // ranks)
        calls = {
            "all_gather": lambda whole=whole, part=part: dist.all_gather_single(whole, part),
            "reduce_scatter": lambda whole=whole, part=part: dist.reduce_scatter_single(
                part, whole
            ),
            "all_reduce": lambda whole=whole: dist.all_reduce(whole),
            "broadcast": lambda whole=whole: dist.broadcast(whole, 0),
        }
        for name, call in calls.items():
            call()
            found[f"{name} {size}"] = [_slowest(call) for _ in range(times)]
    return found


def _slowest(call: object) -> float:
    dist.barrier()
    begin = time.perf_counter()
    call()  # type: ignore[operator]  # a function of nothing
    longest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return float(longest)


def steps(keys: dict[str, object]) -> dict[str, object]:
    """Run steps of a job with other ranks: what they call and send, and how long they take."""
    setup, ledger = _setup(keys)
    with setup.subject.conditions(), by_reference_counts():
        with ledger, ledger.following_resizes():
            seen = observe_job(setup, ledger)
        before = sent()
        seconds = step_seconds(setup)
        after = sent()
    payload = after[0] - before[0] - HEADERS * (after[1] - before[1])
    return {
        "seconds": seconds,
        "payload_bytes": payload / len(seconds),
        "collectives": plain(seen.collectives),
    }


def steps_alone(keys: dict[str, object]) -> dict[str, object]:
    """Time the same steps in a group whose collectives return at once."""
    setup, _ = _setup(keys)
    with setup.subject.conditions(), by_reference_counts():
        step_seconds(setup)  # the first one makes the states
        return {"seconds": step_seconds(setup)}


def _setup(keys: dict[str, object]) -> tuple[Setup, Ledger]:
    question = resolve(load_spec(**keys))
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    subject, ledger = make_subject(question, plan, "own"), Ledger()
    with subject.conditions(), ledger, ledger.following_resizes():
        return make_setup(subject, plan, None, ledger), ledger


@contextmanager
def group(ranks: int, rank: int, store: Path, limit_seconds: float) -> Iterator[None]:
    """Be one rank of a gloo group that meets in a file."""
    dist.init_process_group(
        "gloo",
        init_method=store.as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=limit_seconds),
    )
    yield
    dist.destroy_process_group()


def meet(folder: Path, name: str, rank: int, ranks: int) -> None:
    """Wait for the others where there is no group to do it."""
    (folder / f"{name}.{rank}").touch()
    while not all((folder / f"{name}.{each}").exists() for each in range(ranks)):
        time.sleep(0.001)


def round_of(task: dict[str, Any], rank: int, folder: Path) -> dict[str, object]:
    """Do all of a task once, so that rounds see the same changes of the machine's load."""
    ranks, found = task["ranks"], {}
    folder.mkdir(exist_ok=True)
    with group(ranks, rank, folder / "store", task["limit_seconds"]):
        found["collectives"] = collectives(task["sizes"], task["times"])
        for name, keys in task["jobs"].items():
            found[name] = steps(keys)
    for name, keys in task["jobs"].items():
        with fake_group(ranks, rank):
            meet(folder, name, rank, ranks)
            found[f"{name} alone"] = steps_alone(keys)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    path, rank = Path(sys.argv[1]), int(sys.argv[2])
    task, folder = json.loads(path.read_text()), path.parent
    os.environ["GLOO_SOCKET_IFNAME"] = task["interface"]
    torch.set_num_threads(1)
    rounds = [round_of(task, rank, folder / f"round{each}") for each in range(task["rounds"])]
    (folder / f"{rank}.json").write_text(json.dumps(rounds))


if __name__ == "__main__":
    main()
