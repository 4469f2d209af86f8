"""How ZeRO-1 and ZeRO-2 reduce a bucket: the collectives, and the copies that they need.

Source: `average_tensor`, `allreduce_and_scatter`, `allreduce_bucket` and their kin in
deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.records import dataclass
from zeroplan.schedule.deepspeed_common import (
    FP32,
    FlatGroup,
    accumulation_itemsize,
    collective,
    transient,
    wire_itemsize,
)
from zeroplan.schedule.events import Recorder, Stream
from zeroplan.schedule.plan import Plan
from zeroplan.units import round_up

__all__ = ["BucketReduction"]

EVERYONE = -1
"""Destination of what is all-reduced."""


class _Run(NamedTuple):
    """Neighbouring elements of the bucket that go to the same rank."""

    rank: int
    elements: int
    added: int
    """Those that this rank adds to its fp32 part. [elements]"""


@dataclass(slots=True)
class BucketReduction:
    """Reduces buckets, on a stream of its own where reduction overlaps backward."""

    plan: Plan
    recorder: Recorder
    group: FlatGroup

    @property
    def stream(self) -> Stream:
        """Where reductions run (`overlap_comm`)."""
        return "all-reduce" if self.plan.choice.deepspeed.overlap_comm else "compute"

    @property
    def compact(self) -> bool:
        """Whether reduced gradients are added up in one fp32 vector of this rank's part."""
        return accumulation_itemsize(self.plan) == FP32 != self.plan.dtypes.compute

    def run(self, members: list[int], itemsize: int) -> None:
        """Reduce a bucket; the compute stream first waits for the one before it."""
        if self.stream != "compute":
            self.recorder.emit("wait for reduction", "bucket", waits=(self.stream,))
        settings = self.plan.choice.deepspeed
        if settings.contiguous_gradients and settings.reduce_scatter:
            for rank, runs in self._calls(members):
                self._reduce(rank, runs, itemsize, copies=len(runs) > 1)
        else:
            pieces = self.group.fullest_pieces
            runs = [
                _Run(EVERYONE, self.group.elements[p], pieces[p] if self.compact else 0)
                for p in members
            ]
            copies = not settings.contiguous_gradients and len(runs) > 1
            self._reduce(EVERYONE, runs, itemsize, copies=copies)

    def _calls(self, members: list[int]) -> Iterator[tuple[int, list[_Run]]]:
        """Yield the runs that one call reduces, with their owner where it alone gets them.

        A call takes no more when it has passed the size of the bucket, which only a gradient
        that is larger than the bucket does.
        """
        settings = self.plan.choice.deepspeed
        by_owner: dict[int, list[_Run]] = {}
        for run in self._runs(members):
            owner = EVERYONE if settings.use_multi_rank_bucket_allreduce else run.rank
            by_owner.setdefault(owner, []).append(run)
        for owner, runs in by_owner.items():
            call: list[_Run] = []
            for run in runs:
                call.append(run)
                if sum(r.elements for r in call) > settings.reduce_bucket_size:
                    yield owner, call
                    call = []
            if call:
                yield owner, call

    def _runs(self, members: list[int]) -> list[_Run]:
        """Cut the bucket by destination; what is added to the fp32 part stays in pieces."""
        runs: list[_Run] = []
        for place in members:
            for rank, elements in self.group.spans[place]:
                if self.compact and rank == self.group.fullest_rank:
                    runs.append(_Run(rank, elements, elements))
                elif runs and runs[-1].rank == rank:
                    runs.append(_Run(rank, runs.pop().elements + elements, 0))
                else:
                    runs.append(_Run(rank, elements, 0))
        return runs

    def _reduce(self, owner: int, runs: list[_Run], itemsize: int, *, copies: bool) -> None:
        """Make one call, on a flat copy of several runs, cast to the dtype of the wire.

        Before the last of these copies goes, each own piece is cast to fp32 and added up.
        """
        elements, wire = sum(run.elements for run in runs), wire_itemsize(self.plan)
        flat = round_up(elements * itemsize) if copies else 0
        cast = round_up(elements * wire) if wire != itemsize else 0
        added = max(run.added for run in runs) if wire != FP32 else 0
        made = transient("reduce_scatter_buffers", "bucket", flat, cast)
        fp32 = transient("temporaries", "fp32 gradient", round_up(added * FP32))
        size = elements * wire
        self.recorder.emit(
            "all-reduce" if owner == EVERYONE else "reduce",
            "bucket",
            stream=self.stream,
            changes=(*made[:-1], *fp32, *made[-1:]),
            collective=collective(
                "all_reduce" if owner == EVERYONE else "reduce",
                self.plan.groups.shard,
                size,
                size,
            ),
            traffic_bytes=4 * (flat + cast),
            waits=("compute",),
        )
