"""The baseline that a model of steps has to beat: a roofline in one function.

Best matmul rate that anyone measured times 0.86, which is what a long run keeps of it; one ring for
each collective; the larger of the two in forward, in backward and in the optimizer; every tensor
once through memory at its peak.
"""

from typing import Final

from zeroplan.backtesting.holdout import Run
from zeroplan.compute.gpu import gpu_price
from zeroplan.schedule.events import Event

KEPT: Final = 0.86


def roofline_seconds(run: Run) -> float:
    """Time of a run's step."""
    gpu, wires = run.gpu, run.question.wires
    peak = gpu_price(gpu, run.question.run.training.compute_dtype).peak_flop_per_second
    rate = KEPT * peak * gpu.matmul_efficiency.value
    link = wires.inter if wires.inter.scope == "cluster" else wires.intra
    ring = link.bandwidth_bytes_per_second.value
    phases = {"forward": [0.0, 0.0], "backward": [0.0, 0.0], "optimizer": [0.0, 0.0]}
    for event, times in run.step.calls():
        own = phases[event.phase]
        own[0] += times * _flop(event) / rate
        own[0] += times * _bytes(event) / gpu.hbm_bytes_per_second.value
        if event.collective is not None:
            own[1] += times * event.collective.wire_bytes / ring
    return sum(max(compute, sent) for compute, sent in phases.values())


def _flop(event: Event) -> float:
    flop = 0.0
    for step in event.steps:
        ratio = {"forward": 1.0, "backward": step.operation.backward_ratio, "cached": 0.0}
        flop += step.operation.flop * step.operation.visible_share * ratio[step.direction]
    return flop


def _bytes(event: Event) -> float:
    moved = float(event.traffic_bytes)
    for step in event.steps:
        if step.direction != "cached" and not step.operation.matmuls:
            tensors = (*step.operation.inputs, *step.operation.outputs)
            moved += sum(t.bytes for t in tensors if t.base is None)
    return moved
