"""ZeRO-3's steps in steady state: what its coordinator does once its trace is there.

Source: `PartitionedParameterCoordinator` in deepspeed/runtime/zero/partitioned_param_coordinator.py
(0.19.8).
"""

from functools import lru_cache
from typing import Final

from zeroplan.schedule.zero3_coordinator import Coordinator
from zeroplan.schedule.zero3_recurrence import Kept, State
from zeroplan.schedule.zero3_structure import Action, Course, Laps, Structure

__all__ = ["coordinate"]

WARM_UP_STEPS: Final = 3
"""The first micro-step records the trace, the next one fixes what is released; then it repeats."""


@lru_cache(maxsize=64)
def coordinate(structure: Structure) -> Course:
    """Return the actions of each micro-step of a step in steady state.

    Between steps only what persists is there, so that a first step of one micro-step, which but
    records the trace, leaves nothing to the next one.
    """
    persistent = dict.fromkeys(structure.persistent, True)
    coordinator = Coordinator(structure, complete=structure.micro_steps == 1)
    coordinator.now.available = dict(persistent) if coordinator.complete else {}
    steps: list[Laps] = []
    left: tuple[Action, ...] = ()
    known: dict[Kept, tuple[Laps, State]] = {}
    for _ in range(WARM_UP_STEPS):
        steps = []
        for _ in range(structure.micro_steps):
            start = coordinator.now.kept
            if start in known:
                actions, end = known[start]
                coordinator.now = end.between()
            else:
                traced = coordinator.complete
                actions = coordinator.run()
                if traced:
                    known[start] = actions, coordinator.now.between()
            steps.append(actions)
        left = coordinator.release_all()
        coordinator.now = State(available=dict(persistent))
    return Course(tuple(steps), left)
