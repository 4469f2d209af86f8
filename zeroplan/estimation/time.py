"""The time of a step as a record: its band, what bounds it, and how busy the GPU is."""

from collections import Counter

from zeroplan.compute.gpu import gpu_price
from zeroplan.estimation import record
from zeroplan.estimation.resolve import Question
from zeroplan.records import dataclass
from zeroplan.schedule.plan import Plan
from zeroplan.timing.band import step_band
from zeroplan.timing.walk import Timing
from zeroplan.units import Size
from zeroplan.workload.count import training_flop_per_token
from zeroplan.workload.liveness import recompute

__all__ = ["Load", "Use", "load_of", "time_of_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a step does on a GPU, and on how much of it."""

    tokens_per_second_per_gpu: Size
    model_flops_utilization: Size
    """In the PaLM convention: three forward passes, less what frozen weights save. [1]"""
    hardware_flops_utilization: Size
    """With what is recomputed. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a step gives a GPU to do. Masked scores and the embedding's rows count for nothing."""

    tokens: Size
    model_flop: Size
    """Three forward passes, less what frozen weights save. [FLOP]"""
    recomputed_flop: Size
    """[FLOP]"""

    def use(self, step_seconds: Size, peak_flop_per_second: float) -> Use:
        """Return how busy a GPU is."""
        available = step_seconds * peak_flop_per_second
        return Use(
            tokens_per_second_per_gpu=self.tokens / step_seconds,
            model_flops_utilization=self.model_flop / available,
            hardware_flops_utilization=(self.model_flop + self.recomputed_flop) / available,
        )


def load_of(plan: Plan, micro_steps: Size) -> Load:
    """Count what a step of so many micro-steps does."""
    tokens = plan.workload.batch.tokens * micro_steps
    return Load(
        tokens=tokens,
        model_flop=training_flop_per_token(plan.workload) * tokens,
        recomputed_flop=_recomputed_flop(plan) * micro_steps,
    )


def time_of_step(question: Question, plan: Plan, timing: Timing) -> record.Time:
    """State the time of a step with its band and what bounds it."""
    price = gpu_price(question.gpu, plan.training.compute_dtype)
    use = load_of(plan, plan.micro_steps).use(timing.step_seconds, price.peak_flop_per_second)
    low, high = step_band(timing, question.gpu, question.wires, plan.groups.world)
    return record.Time(
        step_seconds=timing.step_seconds,
        compute_seconds=timing.compute_seconds,
        optimizer_seconds=timing.optimizer_seconds,
        communication_seconds=timing.communication_seconds,
        exposed_communication_seconds=timing.exposed_communication_seconds,
        offload_seconds=timing.offload_seconds,
        exposed_offload_seconds=timing.exposed_offload_seconds,
        low_seconds=low,
        high_seconds=high,
        bound_by=_bound(timing),
        tokens_per_second_per_gpu=use.tokens_per_second_per_gpu,
        model_flops_utilization=use.model_flops_utilization,
        hardware_flops_utilization=use.hardware_flops_utilization,
    )


def _bound(timing: Timing) -> record.Bound:
    exposed, offload = timing.exposed_communication_seconds, timing.exposed_offload_seconds
    if exposed > max(timing.compute_seconds, offload):
        return "communication"
    if offload > timing.compute_seconds:
        return "offload"
    if timing.matmul_seconds + timing.attention_seconds < timing.compute_seconds / 2:
        return "memory_bandwidth"
    return "compute"


def _recomputed_flop(plan: Plan) -> float:
    """Return what backward computes again per micro-step: whole blocks, or what was not kept.

    By convention a whole block counts to its end, though early stop may skip its last product.
    """
    modes = Counter((u, plan.checkpointing(i)) for i, u in enumerate(plan.units))
    flop = 0.0
    for (unit, mode), times in modes.items():
        if mode in ("full", "offloaded"):
            flop += times * sum(operation.flop for operation in unit.operations)
        elif mode == "selective":
            again = (step for step in recompute(unit, mode) if step.direction == "forward")
            flop += times * sum(step.operation.flop for step in again)
    return flop
