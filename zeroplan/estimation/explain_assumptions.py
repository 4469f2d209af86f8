"""Which assumption matters most: every uncertain figure at both ends of its band."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric, fabric
from zeroplan.compute.gpu import gpu_price
from zeroplan.estimation.explain_case import Case
from zeroplan.estimation.explain_record import Sensitivity
from zeroplan.hardware import Node, Quantity, load_catalogue
from zeroplan.hardware.profile import Gpu, Link, Profile, entries
from zeroplan.memory.device import COMMUNICATOR_BYTES, FRAGMENTATION, device_memory
from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective
from zeroplan.units import Guess

__all__ = ["sensitivities"]

NEGLIGIBLE: Final = 1e-3
"""Share of the step, or of usable memory, below which a figure is not worth a line."""
MOST: Final = 8

P = TypeVar("P", bound=Gpu | Link)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """An estimate whose hardware can be exchanged."""

    case: Case
    node: Node | None
    sent: Counter[Collective]
    """Collectives with the number of their calls."""

    def wires(self, link: Link) -> Fabric:
        """Return the links with another version of one of them."""
        wires = self.case.question.wires
        return fabric(
            intra=link if wires.intra.id == link.id else wires.intra,
            inter=link if wires.inter.id == link.id else wires.inter,
            gpus_per_node=wires.gpus_per_node,
            node=self.node,
            gpu=self.case.question.gpu,
            oversubscription=wires.oversubscription,
            backend=wires.backend,
        )

    def seconds(self, gpu: Gpu, wires: Fabric) -> float:
        """Return how much longer the step is on other hardware. [s]"""
        case = self.case
        now = case.now.time.step_seconds or 0.0
        price = gpu_price(gpu, case.plan.training.compute_dtype)
        if price == case.price and self._sent_seconds(wires) < NEGLIGIBLE * now:
            return 0.0  # the step cannot change by more than all its collectives do
        return float(case.walked(price, wires).step_seconds - now)

    def _sent_seconds(self, wires: Fabric) -> float:
        """Return by how much all collectives together change. [s]"""
        now = self.case.question.wires
        changes = (
            times * abs(collective_seconds(call, wires) - collective_seconds(call, now))
            for call, times in self.sent.items()
        )
        return float(sum(changes))

    def device_bytes(self, gpu: Gpu) -> int:
        """Return how much more memory the device holds with another GPU's overheads. [B]"""
        found = self.case.found
        device = device_memory(found.highest.bytes, found.pools_bytes, gpu, self.case.communicators)
        return int(device.device_bytes) - (self.case.now.memory.device_bytes or 0)


def sensitivities(case: Case) -> tuple[Sensitivity, ...]:
    """Vary each uncertain figure by its half-width and return those that matter, largest first."""
    rows = [*_hardware(_exchange(case)), *_guesses(case)]
    seconds = case.now.time.step_seconds or 1.0
    usable = case.now.memory.usable_bytes or 1

    def weight(row: Sensitivity) -> float:
        longest = max(map(abs, row.step_seconds)) / seconds
        return max(longest, max(map(abs, row.device_bytes)) / usable)

    worth = [row for row in rows if weight(row) >= NEGLIGIBLE]
    return tuple(sorted(worth, key=weight, reverse=True)[:MOST])


def _exchange(case: Case) -> _Exchange:
    sent: Counter[Collective] = Counter()
    for event, times in case.step.calls():
        if event.collective is not None:
            sent[event.collective] += times
    named = case.question.run.cluster.node
    node = load_catalogue(case.profiles).node(named) if named else None
    return _Exchange(case=case, node=node, sent=sent)


def _hardware(other: _Exchange) -> Iterator[Sensitivity]:
    gpu, wires = other.case.question.gpu, other.case.question.wires
    for key, quantity in _uncertain(gpu):
        gpus = [_scaled(gpu, key, factor) for factor in _factors(quantity)]
        seconds = [other.seconds(end, wires) for end in gpus]
        yield _row(f"GPU: {key}", quantity, seconds, [other.device_bytes(end) for end in gpus])
    for link in {link.id: link for link in (wires.intra, wires.inter)}.values():
        for key, quantity in _uncertain(link):
            links = [_scaled(link, key, factor) for factor in _factors(quantity)]
            seconds = [other.seconds(gpu, other.wires(end)) for end in links]
            yield _row(f"{link.id}: {key}", quantity, seconds, [0, 0])


def _uncertain(profile: Profile) -> Iterator[tuple[str, Quantity]]:
    for key, entry in entries(profile):
        if isinstance(entry, Quantity) and entry.rel_uncertainty:
            yield key, entry


def _factors(quantity: Quantity | Guess) -> tuple[float, float]:
    """Return both ends of a band; one as wide as its figure is one of ratios, or it would be none."""
    half = quantity.rel_uncertainty or 0.0
    return 1 - half if half < 1 else 1 / (1 + half), 1 + half


def _scaled(profile: P, key: str, factor: float) -> P:
    """Return a profile with one of its figures scaled; a share stays at most 1."""
    name, _, entry = key.partition(".")
    top = 1.0 if "efficiency" in name else math.inf
    value = getattr(profile, name)
    scaled: Any = (
        value
        | {each: _times(old, factor, top) for each, old in value.items() if str(each) == entry}
        if entry
        else _times(value, factor, top)
    )
    return replace(profile, **{name: scaled})


def _times(quantity: Quantity, factor: float, top: float) -> Quantity:
    return replace(quantity, value=min(top, quantity.value * factor))


def _guesses(case: Case) -> Iterator[Sensitivity]:
    """Vary what nobody measured; device memory is a sum in which each stands once."""
    part = FRAGMENTATION.value
    slack = (case.now.memory.reserved_bytes or 0) * part / (1 + part)
    if case.question.gpu.fragmentation is not None:
        slack = 0.0  # a figure of the GPU, varied with the others
    nccl = COMMUNICATOR_BYTES.value * case.communicators
    for guess, share in ((FRAGMENTATION, slack), (COMMUNICATOR_BYTES, nccl)):
        half = round(share * guess.rel_uncertainty)
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
