"""ZeRO++ qgZ: gradients reduced as int4, by an all-to-all in the node and one between nodes.

Source: `all_to_all_quant_reduce` in deepspeed/runtime/comm/coalesced_collectives.py,
csrc/quantization/pt_binding.cpp (0.19.8).
"""

from collections.abc import Iterator
from typing import Final

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import Gradient
from zeroplan.schedule.events import Recorder, Stream, collective
from zeroplan.sharding.groups import Group, Groups
from zeroplan.units import FP32, ceil_div, round_up
from zeroplan.workload.changes import Change

__all__ = ["BUFFER", "QuantizedReduction"]

FP16: Final = 2
BUFFER: Final = "quantised gradients"


@dataclass(slots=True)
class QuantizedReduction:
    """Reduces the gradients of a bucket one by one.

    Python's variables hold the buffers of one gradient until those of the next one are there.
    """

    recorder: Recorder
    groups: Groups
    stream: Stream
    wire: int
    """Bytes per element of what is not quantised."""
    held: dict[str, int] = field(default_factory=dict)
    """Bytes by variable."""

    def run(self, gradients: list[Gradient]) -> int:
        """Reduce gradients, return what it holds at the end: the parts and the last buffers [B]."""
        for gradient in gradients:
            if self._fits(gradient):
                self._quantised(gradient)
            else:
                self._whole(gradient)
        return sum(self.held.values())

    def _fits(self, gradient: Gradient) -> bool:
        """Whether a gradient can be cut for both all-to-alls: a matrix of even parts."""
        return len(gradient.shape) > 1 and gradient.elements % (2 * self.groups.world.ranks) == 0

    def _whole(self, gradient: Gradient) -> None:
        """Reduce-scatter one gradient by itself, padded in a copy where the ranks do not divide it."""
        world = self.groups.world
        part = int(ceil_div(gradient.elements, world.ranks)) * self.wire
        padded = gradient.elements % world.ranks > 0
        changes = self._kept(round_up(part * world.ranks)) if padded else ()
        self.recorder.emit(
            "reduce-scatter",
            "bucket",
            stream=self.stream,
            changes=changes,
            collective=collective("reduce_scatter", world, part * world.ranks, part),
            traffic_bytes=2 * part * world.ranks * padded,
            waits=("compute",),
        )

    def _quantised(self, gradient: Gradient) -> None:
        """Quantise, exchange in the node, reduce, exchange between nodes, dequantise, sum up."""
        intra, inter = self.groups.intra, self.groups.inter
        scales = max(*gradient.shape[:2], self.groups.world.ranks)
        nibbles = gradient.elements // 2
        self._exchange(intra, "intra", nibbles, scales * FP32, gradient.elements * FP16)
        reduced = nibbles // intra.ranks
        self._exchange(inter, "inter", reduced, scales // intra.ranks * FP32, nibbles)
        whole = round_up(2 * reduced * FP16)
        part = round_up(2 * reduced * FP16 // inter.ranks)
        self.recorder.emit(
            "dequantise",
            "bucket",
            stream=self.stream,
            changes=(*self._assign(dequantised=whole), *self._summed(part)),
            traffic_bytes=reduced + 4 * whole,
        )

    def _exchange(self, group: Group, step: str, payload: int, scales: int, read: int) -> None:
        """Send each member its part, and the scales."""
        sent = {f"{step} scales": scales, f"{step} payload": payload}
        kept = {f"{step} payload received": payload, f"{step} scales received": scales}
        self.recorder.emit(
            "all-to-all",
            "bucket",
            stream=self.stream,
            changes=(*self._assign(**sent), *self._assign_each(kept)),
            collective=collective("all_to_all", group, payload),
            traffic_bytes=read + payload,
            waits=("compute",),
        )
        self.recorder.emit(
            "all-to-all scales",
            "bucket",
            stream=self.stream,
            collective=collective("all_to_all", group, scales),
        )

    def _assign(self, **sizes: int) -> Iterator[Change]:
        """Give variables new buffers; what they held goes when all are there."""
        gone = sum(self.held.get(name, 0) for name in sizes)
        for name, size in sizes.items():
            self.held[name] = int(round_up(size))
            yield Change("reduce_scatter_buffers", BUFFER, self.held[name])
        yield Change("reduce_scatter_buffers", BUFFER, -gone)

    def _assign_each(self, sizes: dict[str, int]) -> Iterator[Change]:
        for name, size in sizes.items():
            yield from self._assign(**{name: size})

    def _summed(self, part: int) -> tuple[Change, ...]:
        """Add the nodes' parts up, each sum a new tensor, then divide by their number."""
        adds = [Change("reduce_scatter_buffers", BUFFER, part)] * 2
        gone = Change("reduce_scatter_buffers", BUFFER, -part)
        return (*adds, gone, *self._kept(part), gone)

    def _kept(self, size: int) -> tuple[Change, ...]:
        self.held[f"part {len(self.held)}"] = size
        return (Change("reduce_scatter_buffers", BUFFER, size),)
