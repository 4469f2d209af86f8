"""Which assumption matters most: every uncertain figure at both ends of its band."""

import math
from collections.abc import Iterator
from typing import Final, TypeVar

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric, fabric
from zeroplan.compute.gpu import gpu_price
from zeroplan.estimation.explain_record import Sensitivity
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import Node, Quantity
from zeroplan.hardware.profile import Gpu, Link, Profile, entries
from zeroplan.memory.device import COMMUNICATOR_BYTES, FRAGMENTATION, device_memory
from zeroplan.memory.walk import Trace
from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Script
from zeroplan.schedule.plan import Plan
from zeroplan.timing.walk import walk
from zeroplan.units import Guess

__all__ = ["sensitivities"]

NEGLIGIBLE: Final = 1e-4
"""Share of the step, or of usable memory, below which a figure is not worth a line."""
MOST: Final = 8

P = TypeVar("P", Gpu, Link)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """An estimate whose hardware can be exchanged."""

    question: Question
    plan: Plan
    step: Script
    found: Trace
    now: StrategyEstimate
    node: Node | None

    @property
    def seconds(self) -> float:
        """Step time as estimated. [s]"""
        return self.now.time.step_seconds or 0.0

    def fabric(self, intra: Link, inter: Link) -> Fabric:
        """Join other links as the question's are joined."""
        per_node = self.question.wires.gpus_per_node
        return fabric(intra=intra, inter=inter, gpus_per_node=per_node, node=self.node)

    def step_change(self, gpu: Gpu, wires: Fabric) -> float:
        """Return how much longer the step is on other hardware. [s]"""
        dtype = self.plan.training.compute_dtype
        price = gpu_price(gpu, dtype)
        same = price == gpu_price(self.question.gpu, dtype)
        if same and self._sent_change(wires) < NEGLIGIBLE * self.seconds:
            return 0.0  # the step cannot change by more than all its collectives do
        overlaps = self.question.run.cluster.backend == "nccl"
        return walk(self.step, price, wires, overlaps=overlaps).step_seconds - self.seconds

    def _sent_change(self, wires: Fabric) -> float:
        """Return by how much all collectives together change. [s]"""
        change = 0.0
        for event, times in self.step.calls():
            call = event.collective
            if call is not None:
                before = collective_seconds(call, self.question.wires)
                change += times * abs(collective_seconds(call, wires) - before)
        return change

    def device_change(self, gpu: Gpu) -> int:
        """Return how much more memory the device holds with another GPU's overheads. [B]"""
        communicators = self.plan.row.communicators if self.plan.groups.world.ranks > 1 else 0
        device = device_memory(self.found, gpu, communicators)
        return device.device_bytes - (self.now.memory.device_bytes or 0)


def sensitivities(
    question: Question,
    plan: Plan,
    step: Script,
    found: Trace,
    now: StrategyEstimate,
    node: Node | None,
) -> tuple[Sensitivity, ...]:
    """Vary each uncertain figure by its half-width and return those that matter, largest first."""
    case = _Case(question=question, plan=plan, step=step, found=found, now=now, node=node)
    rows = [*_hardware(case), *_guesses(case)]
    usable = now.memory.usable_bytes or 1

    def weight(row: Sensitivity) -> float:
        longest = max(map(abs, row.step_seconds)) / (case.seconds or 1.0)
        return max(longest, max(map(abs, row.device_bytes)) / usable)

    worth = [row for row in rows if weight(row) >= NEGLIGIBLE]
    return tuple(sorted(worth, key=weight, reverse=True)[:MOST])


def _hardware(case: _Case) -> Iterator[Sensitivity]:
    gpu, wires = case.question.gpu, case.question.wires
    for key, quantity in _uncertain(gpu):
        ends = [_scaled(gpu, key, factor) for factor in _factors(quantity)]
        yield _row(
            f"{gpu.id}: {key}",
            quantity,
            [case.step_change(end, wires) for end in ends],
            [case.device_change(end) for end in ends],
        )
    for link in {link.id: link for link in (wires.intra, wires.inter)}.values():
        for key, quantity in _uncertain(link):
            ends = [_scaled(link, key, factor) for factor in _factors(quantity)]
            pairs = [
                case.fabric(
                    *(end if each.id == link.id else each for each in (wires.intra, wires.inter))
                )
                for end in ends
            ]
            changes = [case.step_change(gpu, pair) for pair in pairs]
            yield _row(f"{link.id}: {key}", quantity, changes, [0, 0])


def _uncertain(profile: Profile) -> Iterator[tuple[str, Quantity]]:
    for key, entry in entries(profile):
        if isinstance(entry, Quantity) and entry.rel_uncertainty:
            yield key, entry


def _factors(quantity: Quantity | Guess) -> tuple[float, float]:
    half = quantity.rel_uncertainty or 0.0
    return 1 - half, 1 + half


def _scaled(profile: P, key: str, factor: float) -> P:
    """Return a profile with one of its figures scaled; a share stays at most 1."""
    name, _, entry = key.partition(".")
    top = 1.0 if "efficiency" in name else math.inf
    value = getattr(profile, name)
    if entry:
        scaled = {
            each: _times(old, factor, top) if str(each) == entry else old
            for each, old in value.items()
        }
        return replace(profile, **{name: scaled})
    return replace(profile, **{name: _times(value, factor, top)})


def _times(quantity: Quantity, factor: float, top: float) -> Quantity:
    return replace(quantity, value=min(top, quantity.value * factor))


def _guesses(case: _Case) -> Iterator[Sensitivity]:
    """Vary what nobody measured; device memory is a sum in which each stands once."""
    memory = case.now.memory
    if memory.reserved_bytes is None:
        return
    slack = memory.reserved_bytes * FRAGMENTATION.value / (1 + FRAGMENTATION.value)
    nccl = COMMUNICATOR_BYTES.value * case.plan.row.communicators
    for guess, share in ((FRAGMENTATION, slack), (COMMUNICATOR_BYTES, nccl)):
        half = round(share * guess.rel_uncertainty)
        alone = case.plan.groups.world.ranks == 1
        if guess is FRAGMENTATION or not alone:
            yield _row(guess.name, guess, [0.0, 0.0], [-half, half])


def _row(
    name: str, figure: Quantity | Guess, seconds: list[float], sizes: list[int]
) -> Sensitivity:
    return Sensitivity(
        name=name.replace("_", " "),
        value=figure.value,
        unit=figure.unit,
        kind=figure.kind if isinstance(figure, Quantity) else "assumed",
        source=figure.source,
        rel_uncertainty=figure.rel_uncertainty or 0.0,
        step_seconds=(seconds[0], seconds[1]),
        device_bytes=(sizes[0], sizes[1]),
    )
