"""What the events of a step take on many machines, for many batches at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice
from zeroplan.compute.offload import OffloadPrice
from zeroplan.compute.price import Work, Works
from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective, Event
from zeroplan.timing.host import HostPrice
from zeroplan.timing.prices import EventPrice, Prices
from zeroplan.workload.changes import Step

__all__ = ["Array", "Machine", "ManyPrices", "OnGpus", "key_of", "varies"]

Array = Any
"""A numpy array, or a number that stands for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU, its links, and its way out to the host."""

    gpu: GpuPrice
    wires: Fabric
    offload: OffloadPrice


def varies(value: Array) -> bool:
    """Whether plans differ in a figure."""
    return isinstance(value, np.ndarray)


def key_of(value: Array) -> object:
    """Return what tells a figure from others: an array by itself, for it has no hash."""
    return ("array", id(value)) if varies(value) else value


class OnGpus:
    """What operations take on the GPUs of machines, for many batches.

    It holds for every number of these GPUs.
    """

    def __init__(
        self, machines: Sequence[Machine], host: HostPrice, batches: int, *, fuses: bool
    ) -> None:
        self.machines, self.batches = machines, batches
        gpus, self._gpu_of = _distinct([(each.gpu, each.offload) for each in machines])
        wires = machines[0].wires  # no operation is sent
        self.prices = [Prices(Works(gpu, fuses), wires, host, offload) for gpu, offload in gpus]
        self._known: dict[int, tuple[tuple[Step, ...], Work, float]] = {}
        self._copies: dict[object, tuple[Array, Array]] = {}

    def serve(self, machines: Sequence[Machine]) -> bool:
        """Whether other machines have the same GPUs."""
        ours, theirs = ([(m.gpu, m.offload) for m in each] for each in (self.machines, machines))
        return ours == theirs

    def steps(self, steps: tuple[Step, ...]) -> tuple[Work, float]:
        """Return what operations take on the GPUs, and on the hosts, which are alike [s]."""
        known = self._known.get(id(steps))
        if known is None:
            # the steps are kept, that their name stays theirs
            each = [prices.steps(steps) for prices in self.prices]
            done, issue = each[0]
            kinds = ("seconds", "matmul_seconds", "attention_seconds")
            joined = {kind: self.joined([getattr(w, kind) for w, _ in each]) for kind in kinds}
            known = self._known[id(steps)] = steps, replace(done, **joined), issue
        return known[1:]

    def copies(self, traffic_bytes: Array) -> Array:
        """Return what copies within the GPUs' memory take. [s]"""
        key = key_of(traffic_bytes)
        if key not in self._copies:
            rates = [each.works.gpu.bytes_per_second for each in self.prices]
            # the bytes are kept, that their name stays theirs
            self._copies[key] = traffic_bytes, self.joined([traffic_bytes / r for r in rates])
        return self._copies[key][1]

    def joined(self, values: list[Array]) -> Array:
        """Spread figures of the GPUs over [batches x machines]."""
        return _joined(values, self._gpu_of, self.batches)


class ManyPrices(dict[Event, EventPrice]):
    """What events take, found when it is first asked for.

    A figure is a number where all plans agree, else an array over [batches x machines], machines
    fastest.
    """

    def __init__(self, machines: Sequence[Machine], on_gpus: OnGpus) -> None:
        super().__init__()
        self.machines, self.on_gpus, self.offloads = machines, on_gpus, True
        self._wires, self._wires_of = _distinct([each.wires for each in machines])
        slowdowns = [each.works.gpu.overlap_slowdown for each in on_gpus.prices]
        self.slowdown = on_gpus.joined(slowdowns)
        """Share by which kernels take longer beside a collective. [1]"""
        self._known: dict[tuple[object, ...], EventPrice] = {}
        self._collectives: dict[object, Array] = {}
        self._sums: dict[tuple[object, ...], Array] = {}

    def without_offload(self) -> "ManyPrices":
        """Return the same prices, where nothing that leaves the GPU takes time."""
        free = ManyPrices(self.machines, self.on_gpus)
        free.offloads = False
        return free

    def __missing__(self, event: Event) -> EventPrice:
        """Price an event on every machine; events that do the same share a price."""
        call, transfer = event.collective, event.transfer
        key = (
            id(event.steps),
            event.phase,
            key_of(event.traffic_bytes),
            key_of(event.launches),
            call and _key_of_call(call),
            transfer and (transfer.route, key_of(transfer.bytes)),
        )
        if key not in self._known:
            self._known[key] = self._price(event)
        price = self[event] = self._known[key]
        return price

    def _price(self, event: Event) -> EventPrice:
        gpus = self.on_gpus.prices
        done, issue = self.on_gpus.steps(event.steps)
        call, traffic = event.collective, event.traffic_bytes
        kernels, moved = done.seconds, 0.0
        if varies(traffic) or traffic:
            kernels = self._sum(kernels, self.on_gpus.copies(traffic))
        leaves = event.transfer is not None or varies(done.moved_bytes) or done.moved_bytes
        if self.offloads and leaves:
            moved = self.on_gpus.joined([each.moved(event.transfer, done) for each in gpus])
        sent = 0.0 if call is None else self._collective(call)
        return EventPrice(
            seconds=self._sum(kernels, sent, moved),
            kernels=kernels,
            sent=sent,
            moved=moved,
            issue=issue + gpus[0].host.event_seconds(event, done),
            line="" if call is None else f"communicator of {call.group.name}",
            work=done,
        )

    def _sum(self, *seconds: Array) -> Array:
        """Add up what takes time at all, once where many events take the same."""
        some = [each for each in seconds if varies(each) or each]
        if not some:
            return 0.0
        first, *others = some
        if not others:
            return first
        key = tuple(map(key_of, some))
        if key not in self._sums:
            self._sums[key] = sum(others, start=first)
        return self._sums[key]

    def _collective(self, call: Collective) -> Array:
        key = _key_of_call(call)
        if key not in self._collectives:
            seconds = [collective_seconds(call, wires) for wires in self._wires]
            self._collectives[key] = _joined(seconds, self._wires_of, self.on_gpus.batches)
        return self._collectives[key]


def _key_of_call(call: Collective) -> tuple[object, ...]:
    return call.name, call.group, key_of(call.input_bytes), key_of(call.output_bytes)


def _joined(values: list[Array], place_of: list[int], batches: int) -> Array:
    """Spread figures of GPUs or links, each a number or an array over batches."""
    if not any(map(varies, values)):
        if len(set(values)) == 1:
            return values[0]
        return np.tile(np.asarray(values)[place_of], batches)
    columns = [np.broadcast_to(value, (batches,)) for value in values]
    return np.stack(columns, axis=1)[:, place_of].ravel()


def _distinct(values: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the values that differ, and which of them stands at each place."""
    distinct: list[Any] = []
    places: list[int] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
        places.append(distinct.index(value))
    return distinct, places
