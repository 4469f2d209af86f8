"""How ZeRO-1 and ZeRO-2 reduce a bucket: the collectives, and the copies that they need.

Source: `average_tensor`, `allreduce_and_scatter`, `allreduce_bucket` and their kin in
deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from zeroplan.records import dataclass, field
from zeroplan.schedule.deepspeed_common import (
    FlatGroup,
    Piece,
    accumulation_itemsize,
    gradient_itemsize,
    transient,
    wire_itemsize,
)
from zeroplan.schedule.events import Stream
from zeroplan.schedule.plan import Plan
from zeroplan.units import FP32, round_up
from zeroplan.workload.changes import Change

__all__ = ["BucketReduction", "Call", "Calls"]

EVERYONE = -1
"""Destination of what is all-reduced."""


class _Run(NamedTuple):
    """Neighbouring elements of the bucket that go to the same rank."""

    rank: int
    elements: int
    added: int
    """Those that this rank adds to its fp32 part. [elements]"""
    times: int = 1
    """Neighbouring ranks that get as many, one after the other."""


CallName = Literal["all_reduce", "reduce"]


class Call(NamedTuple):
    """One call that reduces a bucket or a part of it."""

    name: CallName
    size: int
    """On the wire. [B]"""
    copies: tuple[Change, ...]
    copied_bytes: int
    """Of all copies together. [B]"""


class Calls(NamedTuple):
    """Equal calls, one after the other."""

    call: Call
    times: int


@dataclass(kw_only=True)
class BucketReduction:
    """Reduces buckets, on a stream of its own where reduction overlaps backward."""

    plan: Plan
    group: FlatGroup
    known: dict[tuple[CallName, int, int, int], Call] = field(default_factory=dict)

    @cached_property
    def stream(self) -> Stream:
        """Where reductions run (`overlap_comm`)."""
        return "all-reduce" if self.plan.choice.deepspeed.overlap_comm else "compute"

    @cached_property
    def itemsize(self) -> int:
        """Bytes per element of a gradient that waits."""
        return gradient_itemsize(self.plan)

    @cached_property
    def wire(self) -> int:
        """Bytes per element of a reduction."""
        return wire_itemsize(self.plan)

    @cached_property
    def compact(self) -> bool:
        """Whether reduced gradients are added up in one fp32 vector of this rank's part."""
        return accumulation_itemsize(self.plan) == FP32 != self.plan.dtypes.compute

    def calls(self, members: list[int]) -> Iterator[Calls]:
        """Yield the calls that reduce a bucket, equal neighbours told once."""
        for call, alike in groupby(self._calls(members), key=attrgetter("call")):
            yield Calls(call, sum([each.times for each in alike]))

    def _calls(self, members: list[int]) -> Iterator[Calls]:
        settings = self.plan.choice.deepspeed
        if settings.contiguous_gradients and settings.reduce_scatter:
            for rank, runs, times in self._runs_of_calls(members):
                several = sum([run.times for run in runs]) > 1
                yield Calls(self._call(rank, runs, copies=several), times)
        else:
            pieces = self.group.fullest_pieces
            runs = [
                _Run(EVERYONE, self.group.elements[p], pieces[p] if self.compact else 0)
                for p in members
            ]
            copies = not settings.contiguous_gradients and len(runs) > 1
            yield Calls(self._call(EVERYONE, runs, copies=copies), 1)

    def _runs_of_calls(self, members: list[int]) -> Iterator[tuple[int, list[_Run], int]]:
        """Yield the runs that one call reduces, their owner, and how many such calls there are.

        There is no owner where everyone gets them. A call takes no more when it has passed the size of the bucket, which only a gradient
        that is larger than the bucket does.
        """
        settings = self.plan.choice.deepspeed
        limit, by_owner = settings.reduce_bucket_size, dict[int, list[_Run]]()
        for run in self._runs(members):
            owner = EVERYONE if settings.use_multi_rank_bucket_allreduce else run.rank
            by_owner.setdefault(owner, []).append(run)
        for owner, runs in by_owner.items():
            if owner != EVERYONE and len(runs) == 1:
                yield owner, [runs[0]._replace(times=1)], runs[0].times
                continue
            call, size = list[_Run](), 0
            for run in runs:
                left = run.times
                while left:
                    taken = min(left, (limit - size) // run.elements + 1)
                    call.append(run._replace(times=taken))
                    size += taken * run.elements
                    left -= taken
                    if size > limit:
                        yield owner, call, 1
                        call, size = [], 0
            if call:
                yield owner, call, 1

    def _runs(self, members: list[int]) -> list[_Run]:
        """Cut the bucket by destination; what is added to the fp32 part stays in pieces."""
        runs: list[_Run] = []
        apart = self.group.fullest_rank if self.compact else EVERYONE
        rank, size = EVERYONE, 0
        for place in members:
            for piece in self._pieces(place, apart):
                if piece.rank == rank != apart:
                    size += piece.elements
                    continue
                if size:
                    runs.append(_Run(rank, size, size if rank == apart else 0))
                rank, size = piece.rank, piece.elements
                if piece.ranks > 1:
                    runs.append(_Run(rank, size, 0, piece.ranks))
                    rank, size = EVERYONE, 0
        if size:
            runs.append(_Run(rank, size, size if rank == apart else 0))
        return runs

    def _pieces(self, place: int, apart: int) -> Iterator[Piece]:
        """Yield the pieces of a parameter, that of one rank apart from its neighbours'."""
        for piece in self.group.spans[place]:
            before = apart - piece.rank
            if piece.ranks > 1 and 0 <= before < piece.ranks:
                shares = (before, 1, piece.ranks - before - 1)
                starts = (piece.rank, apart, apart + 1)
                for rank, ranks in zip(starts, shares, strict=True):
                    if ranks:
                        yield Piece(rank, piece.elements, ranks)
            else:
                yield piece

    def _call(self, owner: int, runs: list[_Run], *, copies: bool) -> Call:
        """Return a call, on a flat copy of several runs; equal ones are the same."""
        name: CallName = "all_reduce" if owner == EVERYONE else "reduce"
        elements = sum([run.elements * run.times for run in runs])
        added = max([run.added for run in runs])
        key = (name, elements, elements if copies else 0, added)
        if key not in self.known:
            self.known[key] = self._new_call(*key)
        return self.known[key]

    def _new_call(self, name: CallName, elements: int, copied: int, added: int) -> Call:
        """Cast what is sent to the dtype of the wire.

        Before the last copy goes, each own piece is cast to fp32 and added up.
        """
        wire, itemsize = self.wire, self.itemsize
        flat = int(round_up(copied * itemsize))
        cast = int(round_up(elements * wire)) if wire != itemsize else 0
        made = transient("reduce_scatter_buffers", "bucket", flat, cast)
        own = round_up(added * FP32) if wire != FP32 else 0
        fp32 = transient("temporaries", "fp32 gradient", own)
        return Call(name, elements * wire, (*made[:-1], *fp32, *made[-1:]), flat + cast)
