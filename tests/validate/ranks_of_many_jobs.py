"""Be one rank of several jobs, one after the other: `one_of_many_ranks.py FOLDER RANK`.

FOLDER holds the runs as `runs.pickle`. Of each it gets what the rank saw, as NUMBER.RANK.
"""

import os
import pickle
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.spec.run import Run
from zeroplan.validate.pytorch.environment import by_reference_counts
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.setup import make_setup, make_subject
from zeroplan.validate.pytorch.step import observe_job
from zeroplan.validate.record import Observation

LIMIT = timedelta(minutes=5)
"""Of one collective."""


def observed(run: Run) -> Observation:
    question = resolve(run)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    subject, ledger = make_subject(question, plan, "own"), Ledger()
    with subject.conditions(), by_reference_counts(), ledger, ledger.following_resizes():
        return observe_job(make_setup(subject, plan, None, ledger), ledger)


def main() -> None:
    warnings.simplefilter("ignore")
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for number, run in enumerate(pickle.loads((folder / "runs.pickle").read_bytes())):
        store = (folder / f"{number}.store").as_uri()
        dist.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=run.cluster.gpus, timeout=LIMIT
        )
        (folder / f"{number}.{rank}").write_bytes(pickle.dumps(observed(run)))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
