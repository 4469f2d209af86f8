"""The answer to a run: count, shard, replay, price, for every strategy side by side."""

from functools import lru_cache
from pathlib import Path

from zeroplan.compute.gpu import gpu_price
from zeroplan.compute.offload import offload_price
from zeroplan.estimation import record
from zeroplan.estimation.assumptions import assumptions
from zeroplan.estimation.communication import communication, nccl_communicators
from zeroplan.estimation.resolve import Question, ranks_per_node, resolve, strategy_groups
from zeroplan.estimation.steps import (
    KEPT,
    Clocked,
    Counted,
    Structure,
    WrittenStep,
    counted_model,
    priced,
    shared,
    structure,
    timed,
    write,
)
from zeroplan.estimation.time import time_of_step
from zeroplan.memory.device import DeviceMemory, device_memory
from zeroplan.memory.host import host_memory
from zeroplan.memory.walk import Peak
from zeroplan.schedule.copies import COPIES
from zeroplan.schedule.events import Script
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.dtypes import dtypes
from zeroplan.sharding.offload import offloading, updated_on_host
from zeroplan.sharding.states import States, states
from zeroplan.sharding.strategies import Sharding
from zeroplan.sharding.tuning import tuned_dtypes, tuning
from zeroplan.spec.applies import ignored_keys
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec
from zeroplan.workload.count import parameter_counts

__all__ = ["answer", "estimate", "fits_alone", "moment_name", "plan_for"]


def estimate(
    run: Run | None = None, *, profiles: Path | None = None, **keys: object
) -> record.Estimate:
    """Estimate memory, communication and step time per GPU.

    Parameters
    ----------
    run
        The question; without one it is made of the keys.
    profiles
        Folder whose hardware profiles come before the shipped ones.
    **keys
        Keys of the spec file by name; `model` is the model's source.

    Raises
    ------
    SpecError
        The question names something unknown, contradictory or not modelled.

    Examples
    --------
    >>> estimate(model="8b", gpus=8, strategy="fsdp2").estimates[0].strategy
    'fsdp2'

    """
    return answer(resolve(load_spec(**keys) if run is None else run, profiles))


def answer(question: Question) -> record.Estimate:
    """Answer a question whose model and hardware are there already."""
    answers = tuple(_answer(question, row) for row in question.strategies)
    named = [row.strategy for row in question.strategies]
    plan = _written(structure(question, question.strategies[0])).plan
    total, trained = parameter_counts(plan.workload)
    return record.Estimate(
        inputs=question.run,
        total_parameters=total,
        trainable_parameters=trained,
        assumptions=assumptions(question),
        notes=(*question.notes, *ignored_keys(question.run, named)),
        estimates=answers,
    )


def fits_alone(question: Question) -> tuple[bool, int]:
    """Return whether a question's one strategy fits, and by how much it does not [B].

    Its step is written down but not run on the clock, which is half of an answer's work.
    """
    (row,) = question.strategies
    asked = structure(question, row)
    written = _written(asked)
    device, memory = _memory(question, written)
    _clocked(question, asked, written)  # refused here what is refused there
    fits = "does_not_fit" not in (device.verdict, memory.host_verdict)
    return fits, -(memory.headroom_bytes or 0)


def _answer(question: Question, row: Sharding) -> record.StrategyEstimate:
    asked = structure(question, row)
    written = _written(asked)
    device, memory = _memory(question, written)
    timing = timed(_clocked(question, asked, written))
    return record.StrategyEstimate(
        strategy=row.strategy,
        verdict=device.verdict,
        memory=memory,
        communication=communication(question, written.sent),
        time=time_of_step(question, written.plan, timing),
    )


def _clocked(question: Question, asked: Structure, written: WrittenStep) -> Clocked:
    price = gpu_price(question.gpu, written.plan.training.compute_dtype)
    return Clocked(
        written=written,
        price=price,
        wires=question.wires,
        offload=offload_price(question.gpu, ranks_per_node(question.run)),
        works=priced(asked.trained, price, fuses=question.run.model.compile),
    )


@lru_cache(maxsize=KEPT)
def _written(asked: Structure) -> WrittenStep:
    return write(plan_for(asked.question, asked.row, shared(asked.trained)))


def plan_for(question: Question, row: Sharding, counted: Counted) -> Plan:
    """Join what a strategy is written from; workloads counted before are taken from `counted`."""
    run = question.run
    held, offload = dtypes(row, run.training), offloading(row, run.sharding)
    if offload.optimizer != "none":
        held = updated_on_host(held, run.training, by_torch=offload.by_torch)
    held = tuned_dtypes(held, row, run)
    part = tuning(held, row, run)
    work, joined = counted_model(question, counted, autocast=held.autocast, part=part)
    reference = run.training.reference_model and counted_model(question, counted, autocast=False)
    return Plan(
        workload=work,
        joined=joined,
        reference=reference[0] if reference else None,
        row=row,
        dtypes=held,
        groups=strategy_groups(row, run),
        training=run.training,
        choice=run.sharding,
        offload=offload,
    )


def _memory(question: Question, written: WrittenStep) -> tuple[DeviceMemory, record.Memory]:
    plan, step, found = written.plan, written.step, written.found
    by_phase, highest = found.phases, found.highest
    communicators = nccl_communicators(question, plan.groups)
    device = device_memory(highest.bytes, found.pools_bytes, question.gpu, communicators)
    owned = states(
        plan.row, plan.parameters, plan.dtypes, plan.groups.shard.ranks, offload=plan.offload
    )
    breakdown = {str(c): size for c, size in highest.breakdown.items()}
    breakdown["workspaces"] = device.workspaces_bytes
    host = host_memory(
        plan, step, ranks_per_node(question.run), question.run.cluster.host_memory_bytes
    )
    return device, record.Memory(
        parameters_bytes=owned.parameters_bytes + _copies_bytes(step),
        gradients_bytes=owned.gradients_bytes,
        optimizer_bytes=_optimizer_bytes(owned, step),
        peak_tensor_bytes=highest.bytes,
        peak_allocated_bytes=device.allocated_bytes,
        peak_moment=moment_name(highest),
        peak_breakdown_bytes=record.PeakBreakdown(**breakdown),
        peak_by_phase_bytes=record.PhasePeaks(
            forward=by_phase["forward"].bytes,
            backward=by_phase["backward"].bytes,
            optimizer=by_phase["optimizer"].bytes,
        ),
        reserved_bytes=device.reserved_bytes,
        device_bytes=device.device_bytes,
        usable_bytes=device.usable_bytes,
        headroom_bytes=device.usable_bytes - device.device_bytes,
        host_bytes=host.held_bytes,
        host_load_bytes=host.load_bytes,
        host_save_bytes=host.save_bytes,
        nvme_bytes=host.nvme_bytes,
        checkpoint_bytes=host.checkpoint_bytes,
        host_memory_bytes=host.available_bytes,
        host_verdict=host.verdict,
    )


def _copies_bytes(step: Script) -> int:
    """Return what stands beside the model: an average, a reference model [B]."""
    copies = (c for c in step.resident if c.owner in COPIES and c.category == "parameters")
    return int(sum(each.bytes for each in copies))


def _optimizer_bytes(owned: States, step: Script) -> int:
    """Return what the optimizer keeps: its storages where no figure per parameter says it [B]."""
    if owned.optimizer_bytes is not None:
        return int(owned.optimizer_bytes)
    return int(sum(each.bytes for each in step.resident if each.category == "optimizer"))


def moment_name(peak: Peak) -> str:
    """Name the moment of a peak: "backward, block 79"."""
    event = peak.event
    if event is None:
        return "between steps"
    if event.phase == "optimizer":
        return "optimizer"
    owner = event.owner if peak.block is None else f"block {peak.block}"
    plain = event.name == event.phase
    return f"{event.phase}, {owner}" if plain else f"{event.phase}, {owner}, {event.name}"
