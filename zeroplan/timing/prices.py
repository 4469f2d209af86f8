"""What the events of a step take, before any of them waits."""

from typing import NamedTuple

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.offload import OffloadPrice
from zeroplan.compute.price import Work, Works
from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Collective, CollectiveName, Event, Transfer
from zeroplan.sharding.groups import GroupName
from zeroplan.timing.host import HostPrice
from zeroplan.units import Size, some
from zeroplan.workload.changes import Step

__all__ = ["EventPrice", "Free", "Prices"]

Free = frozenset[tuple[CollectiveName, GroupName]]
"""Collectives by name and group."""


class EventPrice(NamedTuple):
    """What one event takes. [s]"""

    seconds: float
    """All of it."""
    kernels: float
    """Kernels and copies on the GPU."""
    sent: float
    """Its collective."""
    moved: float
    """What it moves outside the GPU's memory."""
    issue: float
    """On the host."""
    line: str
    """Name of the clock of the communicator that it uses, if any."""
    work: Work


@dataclass(eq=False, repr=False)
class Prices(dict[Event, EventPrice]):
    """What events take on one GPU, its host and its links, found when it is first asked for."""

    works: Works
    wires: Fabric
    host: HostPrice
    offload: OffloadPrice | None
    """None where nothing that leaves the GPU takes time."""
    free: Free = frozenset()
    """Collectives that take no time, to see what is waited for."""
    of_steps: dict[int, tuple[Work, float]] = field(default_factory=dict)
    """With what the host needs [s]; by identity: equal blocks share their steps."""
    of_collectives: dict[Collective, float] = field(default_factory=dict)

    def __missing__(self, event: Event) -> EventPrice:
        """Price an event; what it has in common with others is priced once."""
        done, issue = self.steps(event.steps)
        call = event.collective
        kernels = done.seconds + event.traffic_bytes / self.works.gpu.bytes_per_second
        sent = 0.0 if call is None else self._collective(call)
        moved = self.moved(event.transfer, done)
        price = self[event] = EventPrice(
            seconds=kernels + sent + moved,
            kernels=kernels,
            sent=sent,
            moved=moved,
            issue=issue + self.host.event_seconds(event, done),
            line="" if call is None else f"communicator of {call.group.name}",
            work=done,
        )
        return price

    def steps(self, steps: tuple[Step, ...]) -> tuple[Work, float]:
        """Return what operations take on the GPU, and on the host [s]."""
        known = self.of_steps.get(id(steps))
        if known is None:
            done = self.works.of(steps)
            known = self.of_steps[id(steps)] = done, self.host.steps_seconds(steps, done)
        return known

    def _collective(self, collective: Collective) -> float:
        known = self.of_collectives.get(collective)
        if known is None:
            free = (collective.name, collective.group.name) in self.free
            seconds = 0.0 if free else collective_seconds(collective, self.wires)
            known = self.of_collectives[collective] = seconds
        return known

    def moved(self, transfer: Transfer | None, done: Work) -> Size:
        """Time of what leaves the GPU: an event's own transfer, and offloaded activations. [s]"""
        if self.offload is None or (transfer is None and not some(done.moved_bytes)):
            return 0.0
        rates = self.offload.bytes_per_second
        own = 0.0 if transfer is None else transfer.bytes / rates[transfer.route]
        return own + done.moved_bytes / rates["pinned copy"]
