"""Figures of steps on a GPU: the allocator's, the clock's, and those of a trace."""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from zeroplan.records import replace
from zeroplan.units import GIB, MIB
from zeroplan.validate.machine import machine
from zeroplan.validate.measurement import (
    Machine,
    Measured,
    MeasuredMemory,
    MeasuredTime,
    Outcome,
    spread,
)
from zeroplan.validate.pytorch.meters import AllocatorMeter, Clock
from zeroplan.validate.pytorch.step import Setup, observe_job, run_steps
from zeroplan.validate.trace import StepTrace, bus_times, read_trace

__all__ = ["figures", "gpu_versions", "machine_with_gpu", "out_of_memory"]

WARM_UP: Final = 3
MEMORY: Final = 3
TIMED: Final = 10
TRACED: Final = 3
"""Steps of each kind, in this order. [count]"""

UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB}
REQUEST: Final = re.compile(r"[Tt]r(?:ied|y) to allocate ([\d.]+) ?(bytes|[KMG]iB)")


def figures(
    setup: Setup, device: torch.device, tell: Callable[[str], None], *, alone: bool
) -> Measured:
    """Measure steps; `alone` says that no collective runs, so that there is none to trace."""
    torch.cuda.empty_cache()
    tell("warm-up")
    run_steps(setup, WARM_UP)
    tell("memory")
    memory = _memory(setup, device)
    tell("timed steps")
    clock = Clock(device)
    clock.mark()
    run_steps(setup, TIMED, clock)
    torch.cuda.synchronize(device)
    steps, updates = clock.seconds()
    tell("watched steps")
    seen = observe_job(setup, AllocatorMeter(device))
    time = MeasuredTime(step_seconds=spread(steps), optimizer_seconds=spread(updates))
    measured = Measured(
        step=replace(seen, step_seconds=tuple(steps)),
        memory=memory,
        time=replace(time, compute_seconds=time.step_seconds),
    )
    if alone:
        return measured
    tell("traced steps")
    return _with_traces(measured, [_traced(setup, device) for _ in range(TRACED)][1:])


def _memory(setup: Setup, device: torch.device) -> MeasuredMemory:
    allocated, reserved, used = list[float](), list[float](), list[float]()
    for _ in range(MEMORY):
        torch.cuda.reset_peak_memory_stats(device)
        run_steps(setup, 1)
        torch.cuda.synchronize(device)
        allocated.append(torch.cuda.max_memory_allocated(device))
        reserved.append(torch.cuda.max_memory_reserved(device))
        free, total = torch.cuda.mem_get_info(device)
        used.append(total - free)
    return MeasuredMemory(
        peak_allocated_bytes=spread(allocated),
        reserved_bytes=spread(reserved),
        device_bytes=spread(used),
    )


def _traced(setup: Setup, device: torch.device) -> StepTrace | None:
    """Trace one step; None where the profiler may not see kernels."""
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run_steps(setup, 1)
        torch.cuda.synchronize(device)
    with tempfile.TemporaryDirectory(prefix="zeroplan-") as folder:
        path = Path(folder) / "step.json"
        profiler.export_chrome_trace(str(path))
        return read_trace(json.loads(path.read_text(errors="replace")))


def _with_traces(measured: Measured, traces: list[StepTrace | None]) -> Measured:
    """Add what traces show; a step computes for as long as it does not wait."""
    seen = [each for each in traces if each is not None]
    step = measured.time.step_seconds
    if not seen or step is None:
        return replace(measured, time=replace(measured.time, compute_seconds=None))
    exposed = spread(each.exposed_seconds for each in seen)
    computing = (max(0.0, each - exposed.median) for each in measured.step.step_seconds)
    time = replace(
        measured.time,
        compute_seconds=spread(computing),
        communication_seconds=spread(each.communication_seconds for each in seen),
        exposed_communication_seconds=exposed,
    )
    return replace(measured, time=time, collectives=bus_times(seen))


def machine_with_gpu(index: int = 0) -> Machine:
    """Describe this machine with one of its GPUs."""
    found: Any = torch.cuda.get_device_properties(index)
    return machine(gpu=found.name, gpu_memory_bytes=int(found.total_memory))


def gpu_versions() -> dict[str, str]:
    """Return the versions of CUDA, or ROCm, and of NCCL that torch was built with."""
    found = {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {name: str(number) for name, number in found.items() if number}


def out_of_memory(error: BaseException) -> Outcome | None:
    """Return the outcome that an error stands for, where memory ran out on the GPU or the host."""
    told = str(error).partition("\n")[0]
    ran_out = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if not (ran_out or "can't allocate memory" in told):
        return None
    found = REQUEST.search(str(error))
    size = None if found is None else int(float(found[1]) * UNITS[found[2]])
    return Outcome(kind="oom", reason=told or "out of memory", requested_bytes=size)
