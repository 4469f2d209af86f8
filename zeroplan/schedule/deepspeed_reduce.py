"""How ZeRO-1 and ZeRO-2 reduce a bucket: the collectives and the copies they need.

Source: `average_tensor`, `allreduce_and_scatter`, `allreduce_bucket` and their kin in
deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

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
from zeroplan.workload.liveness import Change

__all__ = ["BucketReduction"]


class _Run(NamedTuple):
    """Neighbouring elements of the bucket that go to the same rank."""

    rank: int
    elements: int
    adds: bool
    """Whether this rank adds the result to its fp32 part."""


@dataclass(slots=True)
class BucketReduction:
    """Reduces buckets, on a stream of its own where reduction overlaps backward."""

    plan: Plan
    recorder: Recorder
    group: FlatGroup
    rank: int
    pending: list[int] = field(default_factory=list)
    """Reductions that the compute stream has not waited for."""

    @property
    def stream(self) -> Stream:
        """Where reductions run."""
        return "all-reduce" if self.plan.choice.deepspeed.overlap_comm else "compute"

    def emit(self, name: str, changes: tuple[Change, ...], after: int) -> int:
        """Append an event on the reduction's stream."""
        return self.recorder.emit(
            name, "bucket", stream=self.stream, changes=changes, waits=(after,)
        )

    def run(self, members: list[int], itemsize: int, ready: int) -> int:
        """Reduce a bucket; the compute stream first waits for the one before it."""
        if self.pending:
            ready = self.recorder.emit("wait for reduction", "bucket", waits=self.pending)
            self.pending = []
        settings = self.plan.choice.deepspeed
        event = ready
        if not settings.contiguous_gradients or not settings.reduce_scatter:
            whole = [_Run(-1, self.group.elements[place], adds=False) for place in members]
            copies = not settings.contiguous_gradients and len(members) > 1
            event = self._reduce(whole, itemsize, event, copies=copies, to_owner=False)
        else:
            for runs, to_owner in self._lists(members):
                event = self._reduce(runs, itemsize, event, copies=len(runs) > 1, to_owner=to_owner)
        if self.stream != "compute":
            self.pending = [event]
        return event

    def _lists(self, members: list[int]) -> Iterator[tuple[list[_Run], bool]]:
        """Yield what is reduced by one call, and whether to its owner alone.

        A list closes when it has passed the size of the bucket, which only a gradient that is
        larger than the bucket does.
        """
        settings = self.plan.choice.deepspeed
        lists: dict[int, list[_Run]] = {}
        for run in self._runs(members):
            key = -1 if settings.use_multi_rank_bucket_allreduce else run.rank
            lists.setdefault(key, []).append(run)
        for key, runs in lists.items():
            part: list[_Run] = []
            for run in runs:
                part.append(run)
                if sum(r.elements for r in part) > settings.reduce_bucket_size:
                    yield part, key >= 0
                    part = []
            if part:
                yield part, key >= 0

    def _runs(self, members: list[int]) -> list[_Run]:
        """Cut the bucket by destination; pieces that are added to the fp32 part stay apart."""
        compact = accumulation_itemsize(self.plan) == FP32 != self.plan.dtypes.compute
        runs: list[_Run] = []
        for place in members:
            for rank, elements in self.group.spans[place]:
                adds = compact and rank == self.rank
                if runs and runs[-1].rank == rank and not adds:
                    elements += runs.pop().elements
                runs.append(_Run(rank, elements, adds))
        return runs

    def _reduce(
        self, runs: list[_Run], itemsize: int, after: int, *, copies: bool, to_owner: bool
    ) -> int:
        """Make one call: on a flat copy of several runs, and a copy in the dtype of the wire."""
        elements, wire = sum(run.elements for run in runs), wire_itemsize(self.plan)
        flat = round_up(elements * itemsize) if copies else 0
        cast = round_up(elements * wire) if wire != itemsize else 0
        owner = "flat bucket"
        widest = max((r.elements for r in runs if r.adds), default=0) if wire != FP32 else 0
        changes = transient("reduce_scatter_buffers", owner, flat, cast)
        if widest:
            last = cast or flat
            body, end = changes[:-1], changes[-1:]
            changes = (*body, *transient("temporaries", owner, round_up(widest * FP32)), *end)
            changes = changes if last else changes
        size = elements * wire
        return self.recorder.emit(
            "reduce" if to_owner else "all-reduce",
            "bucket",
            stream=self.stream,
            changes=changes,
            collective=collective(
                "reduce" if to_owner else "all_reduce", self.plan.groups.shard, size, size
            ),
            traffic_bytes=2 * (flat + cast) + 2 * flat,
            waits=(after,),
        )
