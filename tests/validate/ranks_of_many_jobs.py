"""Be every rank of several jobs, those of as many ranks one after the other: `... FOLDER`.

FOLDER holds the runs as `runs.pickle`. Of each it gets what its ranks saw, as NUMBER.RANK. PyTorch
is imported once: ranks are forked, as nothing has started a thread yet.
"""

import os
import pickle
import signal
import sys
import warnings
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import torch
import torch._dynamo  # before the ranks are forked: each would import it in its first step
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


def be_rank(rank: int, runs: dict[int, Run], folder: Path) -> None:
    torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)  # noqa: SLF001  # as in `real`
    torch.set_num_threads(1)
    for number, run in runs.items():
        store = (folder / f"{number}.store").as_uri()
        dist.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=run.cluster.gpus, timeout=LIMIT
        )
        (folder / f"{number}.{rank}").write_bytes(pickle.dumps(observed(run)))
        dist.destroy_process_group()


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    runs = dict(enumerate(pickle.loads((folder / "runs.pickle").read_bytes())))
    context = get_context("fork")
    for count in sorted({run.cluster.gpus for run in runs.values()}):
        same = {number: run for number, run in runs.items() if run.cluster.gpus == count}
        ranks = [
            context.Process(target=be_rank, args=(rank, same, folder), daemon=True)
            for rank in range(count)
        ]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        if any(each.exitcode for each in ranks):
            sys.exit(1)


if __name__ == "__main__":
    main()
