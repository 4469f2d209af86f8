"""DDP with ZeroRedundancyOptimizer: every rank updates some whole parameters and sends them out.

Source: torch/distributed/optim/zero_redundancy_optimizer.py (2.13). Up to the optimizer step it is
DDP; the rank shown is the one that got the most parameters.
"""

from zeroplan.schedule.ddp import data_parallel_script
from zeroplan.schedule.events import Recorder, Script, collective
from zeroplan.schedule.optimizer import Sizes
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.layout import packed
from zeroplan.sharding.optimizer_states import vector

__all__ = ["torch_zero1_script"]


def torch_zero1_script(plan: Plan) -> Script:
    """Write one steady-state step of DDP with ZeroRedundancyOptimizer down.

    Parameters lie in storages of their own or in a bucket per rank, and each storage is sent by
    itself; a rank without parameters has a bucket of one element (`_build_param_buckets`).
    """
    sizes = [(p.elements, times) for p, times in plan.trained]
    whole = [size for size, times in sizes for _ in range(times)]
    busy = min(len(whole), plan.groups.world.ranks)
    shares = packed(whole, busy)
    stored = sizes
    if plan.choice.parameters_as_bucket_view:
        idle = plan.groups.world.ranks - busy
        stored = [(sum(share), 1) for share in shares] + ([(1, idle)] if idle else [])
    updated = [vector(size) for size in max(shares, key=sum)]
    return data_parallel_script(
        plan, stored, updated, lambda recorder: _broadcast(plan, recorder, stored)
    )


def _broadcast(plan: Plan, recorder: Recorder, stored: Sizes) -> None:
    """Send every storage from the rank that updated it (`_sync_params`)."""
    world = plan.groups.world
    if world.ranks == 1:
        return
    for elements, times in stored:
        size = elements * plan.dtypes.parameter
        with recorder.repeat(times):
            recorder.emit(
                "broadcast parameters",
                "optimizer",
                stream="all-reduce",
                collective=collective("broadcast", world, size),
                waits=("compute",),
            )
