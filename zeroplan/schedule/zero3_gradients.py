"""ZeRO-3's gradients: copied into a bucket as they arrive, reduce-scattered by the bucket.

Source: `reduce_independent_p_g_buckets_and_remove_grads`, `__avg_scatter_grads` and their kin in
deepspeed/runtime/zero/stage3.py, `reduce_scatter_coalesced` in
deepspeed/runtime/comm/coalesced_collectives.py (0.19.8).
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import (
    FP64,
    Gradient,
    accumulation_itemsize,
    transient,
    wire_itemsize,
)
from zeroplan.schedule.events import CollectiveName, Recorder, Stream, collective
from zeroplan.schedule.offload import NORMS, copied
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.zero3_quantized_gradients import BUFFER, QuantizedReduction
from zeroplan.units import ALLOCATION_BYTES, FP32, ceil_div, round_up
from zeroplan.workload.changes import Change

__all__ = ["Gradients"]

NORM_ELEMENTS: Final = 250_000_000
"""Elements of which `_constant_buffered_norm2` takes the norm at once."""


@dataclass(slots=True)
class Gradients:
    """The bucket, which is there throughout, and what it holds."""

    plan: Plan
    recorder: Recorder
    members: list[Gradient] = field(default_factory=list)
    """Gradients that the bucket holds."""
    filled: int = 0
    """[elements]"""
    standing: list[Gradient] = field(default_factory=list)
    """Those that stay in storages of their own."""
    boundary: bool = True
    """Whether this is the last micro-step."""
    accumulates: bool = False
    """Whether an earlier micro-step left gradients."""

    @property
    def stream(self) -> Stream:
        """Where gradients are copied and reduced (`overlap_comm`)."""
        overlaps = self.plan.choice.deepspeed.overlap_comm
        return "compute" if overlaps is False else "reduce-scatter"

    @property
    def bucket_bytes(self) -> int:
        """Size of the buffer [B]."""
        settings = self.plan.choice.deepspeed
        size = settings.reduce_bucket_size if settings.contiguous_gradients else 0
        return int(round_up(size * wire_itemsize(self.plan)))

    def pass_by(self, fresh: list[Gradient]) -> list[tuple[int, list[Gradient], list[Gradient]]]:
        """Take gradients in without writing it down, return where the bucket goes with what."""
        cuts = []
        for number, gradient in enumerate(fresh):
            if self.overflows(gradient.elements):
                cuts.append((number, self.members, self.standing))
                self.empty()
            self.add(gradient)
        return cuts

    def filled_as(self, other: "Gradients") -> None:
        """Hold what the other one holds."""
        self.members, self.standing = list(other.members), list(other.standing)
        self.filled = other.filled

    def overflows(self, size: int) -> bool:
        """Whether what the bucket holds goes before a gradient of this size comes."""
        limit = self.plan.choice.deepspeed.reduce_bucket_size
        return bool(self.members) and self.filled + size > limit

    def add(self, gradient: Gradient) -> None:
        """Take a gradient in; one that is larger than the bucket stays where autograd put it."""
        settings = self.plan.choice.deepspeed
        self.members.append(gradient)
        self.filled += gradient.elements
        if not settings.contiguous_gradients or gradient.elements > settings.reduce_bucket_size:
            self.standing.append(gradient)

    def empty(self) -> None:
        """Start the next bucket."""
        self.members, self.standing, self.filled = [], [], 0

    def arrive(self, gradient: Gradient) -> None:
        """Copy a fresh gradient into the bucket, reducing first what is in there if it is full."""
        if self.overflows(gradient.elements):
            self.reduce()
        standing = len(self.standing)
        self.add(gradient)
        if len(self.standing) > standing:
            return
        size = round_up(gradient.elements * self.plan.dtypes.compute)
        self.recorder.emit(
            "copy to bucket",
            "gradients",
            stream=self.stream,
            changes=(Change("unsharded_gradients", "gradient", -size),),
            traffic_bytes=2 * size,
            waits=("compute",),
        )

    def reduce(self) -> None:
        """Reduce the bucket and add this rank's parts to the gradient shards."""
        if not self.members:
            return
        settings, group = self.plan.choice.deepspeed, self.plan.groups.shard
        if settings.zero_quantized_gradients and self.plan.groups.inter.ranks > 1:
            self._reduce_quantized()
            return
        wire, elements = wire_itemsize(self.plan), self.filled
        parts = sum(int(ceil_div(each.elements, group.ranks)) for each in self.members)
        whole = not settings.reduce_scatter and elements <= settings.reduce_bucket_size
        name: CollectiveName = "reduce_scatter"
        sent, kept = parts * group.ranks * wire, parts * wire
        if whole and settings.contiguous_gradients:
            name, sent, kept = "all_reduce", elements * wire, elements * wire
        copies = self._copies(name, sent)
        size = self._each(self.standing, self.plan.dtypes.compute)
        made = [change for change in copies if change.bytes > 0]
        last = 1 if accumulation_itemsize(self.plan) != wire else len(made)
        self.recorder.emit(
            name.replace("_", "-"),
            "bucket",
            stream=self.stream,
            changes=(
                *made,
                *(-each for each in made[:-last]),
                *self._on_the_way(),
                *(-each for each in made[-last:]),
                Change("unsharded_gradients", "gradients", -size),
            ),
            collective=collective(name, group, sent, kept),
            traffic_bytes=2 * sum(change.bytes for change in made),
            waits=("compute",),
        )
        self._hand_on(parts)
        self.empty()

    def _hand_on(self, parts: int) -> None:
        """Send this rank's parts where they are kept: to the host, and over the copies of shards."""
        if self.plan.offload.optimizer != "none":
            self.recorder.emit(
                "copy to host",
                "bucket",
                stream=self.stream,
                transfer=copied(self.plan.offload, self._sent(parts)),
            )
        if self.boundary and self.plan.groups.replicate.ranks > 1:
            self._average(parts * accumulation_itemsize(self.plan))

    def _average(self, size: int) -> None:
        """Average the parts with those of the other groups, in place in one coalesced call."""
        self.recorder.emit(
            "all-reduce",
            "bucket",
            stream=self.stream,
            collective=collective("all_reduce", self.plan.groups.replicate, size),
            traffic_bytes=2 * size,
        )

    def _reduce_quantized(self) -> None:
        """Reduce the bucket gradient by gradient, in the order of registration."""
        wire, kept = wire_itemsize(self.plan), accumulation_itemsize(self.plan)
        cast = self._each(self.standing, wire) if self.plan.dtypes.compute != wire else 0
        casts = transient("reduce_scatter_buffers", "bucket", cast)
        recorder, groups = self.recorder, self.plan.groups
        recorder.emit("cast", "bucket", stream=self.stream, changes=casts[:1], waits=("compute",))
        reduction = QuantizedReduction(recorder, groups, self.stream, wire)
        held = reduction.run(self.members[::-1])
        parts = self._each(self.members, kept, groups.shard.ranks) if kept != wire else 0
        standing = self._each(self.standing, self.plan.dtypes.compute)
        recorder.emit(
            "accumulate",
            "bucket",
            stream=self.stream,
            changes=(
                *transient("reduce_scatter_buffers", "bucket", parts),
                Change("reduce_scatter_buffers", BUFFER, -held),
                *casts[1:],
                Change("unsharded_gradients", "gradients", -standing),
            ),
        )
        self.empty()

    def _on_the_way(self) -> tuple[Change, ...]:
        """List what lives while parts go to the host, one after the other.

        A part comes back at once, to be added to there and for its norm, and then goes in fp32
        (`partition_grads`, `_offload_grad_partition_at_boundary`). With NVMe the fp32 parts of the
        whole bucket wait for each other (`swap_out_gradients`).
        """
        offload = self.plan.offload
        if offload.optimizer == "none":
            return ()
        kept, ranks = accumulation_itemsize(self.plan), self.plan.groups.shard.ranks
        parts = [int(ceil_div(each.elements, ranks)) for each in self.members]
        alone = max(
            round_up(part * kept) + round_up(min(part, NORM_ELEMENTS) * FP64) * self.boundary
            for part in parts
        )
        if self.accumulates and not self.boundary:
            alone = max(round_up(a * kept) + round_up(b * kept) for a, b in pairwise([0, *parts]))
        waiting = 0
        if offload.optimizer == "nvme" and self.boundary and kept != FP32:
            waiting = sum(round_up(part * FP32) for part in parts)
        norms = Change("temporaries", NORMS, len(parts) * ALLOCATION_BYTES * self.boundary)
        return (
            *transient("temporaries", "gradient on its way to the host", alone, waiting),
            norms,
        )

    def _sent(self, parts: int) -> int:
        """Count what moves between GPU and host for so many elements [B]."""
        kept = accumulation_itemsize(self.plan)
        return parts * (2 * kept + FP32 * self.boundary)

    def _copies(self, name: CollectiveName, sent: int) -> tuple[Change, ...]:
        """List the copies that a reduction makes.

        A reduce-scatter needs the ranks' parts side by side, which one gradient without padding
        has already. Gradients outside the bucket are cast for the wire, the parts that come back
        for where they accumulate.
        """
        wire, kept = wire_itemsize(self.plan), accumulation_itemsize(self.plan)
        if name == "all_reduce":
            scaled = round_up(self.filled * wire)
            cast = round_up(self.filled * kept) if kept != wire else 0
            return transient("reduce_scatter_buffers", "bucket", scaled, cast)
        ranks, held = self.plan.groups.shard.ranks, self.plan.dtypes.compute
        fits = len(self.members) == 1 and self.filled % ranks == 0
        parts = self._each(self.members, kept, ranks) if kept != wire else 0
        return transient(
            "reduce_scatter_buffers",
            "bucket",
            self._each(self.standing, wire) if held != wire else 0,
            0 if fits else round_up(sent),
            parts,
        )

    def _each(self, gradients: Iterable[Gradient], itemsize: int, ranks: int = 1) -> int:
        """Sum gradients or one rank's parts of them, each in a storage of its own [B]."""
        sizes = (ceil_div(each.elements, ranks) * itemsize for each in gradients)
        return int(sum(map(round_up, sizes)))
