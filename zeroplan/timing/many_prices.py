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

__all__ = ["Array", "Machine", "ManyPrices"]

Array = Any
"""A numpy array, or a number that stands for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU, its links, and its way out to the host."""

    gpu: GpuPrice
    wires: Fabric
    offload: OffloadPrice


class ManyPrices(dict[Event, EventPrice]):
    """What events take, found when it is first asked for.

    A figure is a number where all plans agree, else an array over [batches x machines], machines
    fastest.
    """

    def __init__(
        self, machines: Sequence[Machine], host: HostPrice, batches: int, *, fuses: bool
    ) -> None:
        super().__init__()
        self.batches = batches
        self.machines = machines
        self._gpus, self._gpu_of = _distinct([(each.gpu, each.offload) for each in machines])
        self._wires, self._wires_of = _distinct([each.wires for each in machines])
        self._on_gpus = [
            Prices(Works(gpu, fuses), self._wires[0], host, offload) for gpu, offload in self._gpus
        ]
        self.slowdown = self._by_gpu([each.works.gpu.overlap_slowdown for each in self._on_gpus])
        """Share by which kernels take longer beside a collective. [1]"""
        self._steps: dict[int, tuple[Work, float]] = {}
        self._collectives: dict[object, Array] = {}

    def of(self, plans: Array) -> "ManyPrices":
        """Return the prices of some of the plans, by their place in [batches x machines]."""
        return _SomePrices(self, plans)

    def without_offload(self) -> "ManyPrices":
        """Return the same prices, where nothing that leaves the GPU takes time."""
        free = ManyPrices.__new__(ManyPrices)
        free.__dict__ |= self.__dict__
        free._on_gpus = [replace(each, offload=None) for each in self._on_gpus]  # noqa: SLF001
        return free

    def __missing__(self, event: Event) -> EventPrice:
        """Price an event on every machine."""
        done, issue = self._work(event.steps)
        call, traffic = event.collective, event.traffic_bytes
        copies = [traffic / each.works.gpu.bytes_per_second for each in self._on_gpus]
        moves = [each.moved(event.transfer, each.steps(event.steps)[0]) for each in self._on_gpus]
        kernels, moved = done.seconds + self._by_gpu(copies), self._by_gpu(moves)
        sent = 0.0 if call is None else self._collective(call)
        price = self[event] = EventPrice(
            seconds=kernels + sent + moved,
            kernels=kernels,
            sent=sent,
            moved=moved,
            issue=issue + self._on_gpus[0].host.event_seconds(event, done),
            line="" if call is None else f"communicator of {call.group.name}",
            work=done,
        )
        return price

    def _work(self, steps: tuple[Step, ...]) -> tuple[Work, float]:
        """Join the work of all GPUs; hosts are alike."""
        if id(steps) not in self._steps:
            each = [prices.steps(steps) for prices in self._on_gpus]
            done, issue = each[0]
            kinds = ("seconds", "matmul_seconds", "attention_seconds")
            joined = {kind: self._by_gpu([getattr(w, kind) for w, _ in each]) for kind in kinds}
            self._steps[id(steps)] = replace(done, **joined), issue
        return self._steps[id(steps)]

    def _collective(self, call: Collective) -> Array:
        # An array of sizes has no hash; its script keeps it alive.
        sizes = tuple(
            size if isinstance(size, int) else id(size)
            for size in (call.input_bytes, call.output_bytes)
        )
        key = call.name, call.group, sizes
        if key not in self._collectives:
            seconds = [collective_seconds(call, wires) for wires in self._wires]
            self._collectives[key] = self._joined(seconds, self._wires_of)
        return self._collectives[key]

    def _by_gpu(self, values: list[Array]) -> Array:
        return self._joined(values, self._gpu_of)

    def _joined(self, values: list[Array], place_of: list[int]) -> Array:
        """Spread figures of GPUs or links, each a number or an array over batches."""
        if all(np.ndim(value) == 0 for value in values):
            if len(set(values)) == 1:
                return values[0]
            return np.tile(np.asarray(values)[place_of], self.batches)
        columns = [np.broadcast_to(value, (self.batches,)) for value in values]
        return np.stack(columns, axis=1)[:, place_of].ravel()


class _SomePrices(ManyPrices):
    """Prices of some plans, taken from those of all."""

    def __init__(self, whole: ManyPrices, plans: Array) -> None:
        dict.__init__(self)
        self.whole, self.plans = whole, plans
        self.slowdown = self._taken(whole.slowdown)

    def without_offload(self) -> ManyPrices:
        """Return the same prices, where nothing that leaves the GPU takes time."""
        return _SomePrices(self.whole.without_offload(), self.plans)

    def __missing__(self, event: Event) -> EventPrice:
        """Take an event's price."""
        price = self.whole[event]
        found = self[event] = price._replace(
            seconds=self._taken(price.seconds),
            kernels=self._taken(price.kernels),
            sent=self._taken(price.sent),
            moved=self._taken(price.moved),
            work=replace(
                price.work,
                matmul_seconds=self._taken(price.work.matmul_seconds),
                attention_seconds=self._taken(price.work.attention_seconds),
            ),
        )
        return found

    def _taken(self, values: Array) -> Array:
        return values[self.plans] if np.ndim(values) else values


def _distinct(values: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the values that differ, and which of them stands at each place."""
    distinct: list[Any] = []
    places: list[int] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
        places.append(distinct.index(value))
    return distinct, places
