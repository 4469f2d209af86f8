"""ZeRO-3's parameters: gathered ahead of the modules that need them, dropped behind them.

Source: `all_gather_coalesced`, `AllGatherCoalescedHandle` and `_partition_param` in
deepspeed/runtime/zero/partition_parameters.py (0.19.8).
"""

from collections.abc import Iterable

from zeroplan.records import dataclass, field
from zeroplan.schedule.events import Recorder, Transfer, collective
from zeroplan.schedule.offload import copied
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.zero3_structure import Action
from zeroplan.units import ceil_div, round_up
from zeroplan.workload.changes import Change

__all__ = ["Parameters"]


@dataclass(slots=True)
class Parameters:
    """The parameters of the model, each known by its place."""

    plan: Plan
    recorder: Recorder
    elements: tuple[int, ...]
    saving: frozenset[int] = frozenset()
    """What a checkpoint that recomputes saves: it outlives the release."""
    drive_share: float = 0.0
    """Share of the parameters that live on a drive; which blocks they belong to is not followed. [1]"""
    saved: dict[int, int] = field(default_factory=dict)
    """Released parameters that a checkpoint holds until their operation's backward. [B]"""

    def shard(self, place: int) -> int:
        """Return one rank's elements of a parameter."""
        return int(ceil_div(self.elements[place], self.plan.groups.shard.ranks))

    def gathered_bytes(self, places: Iterable[int]) -> int:
        """Return the bytes of gathered parameters, padding included."""
        ranks, itemsize = self.plan.groups.shard.ranks, self.plan.dtypes.parameter
        return int(sum(self.shard(place) for place in places) * ranks * itemsize)

    def whole_bytes(self, place: int, *, alone: bool) -> int:
        """Return the bytes of a parameter; the padding stays if it was gathered by itself."""
        if self._at_hand:
            return 0
        if alone:
            return int(round_up(self.gathered_bytes((place,))))
        return int(round_up(self.elements[place] * self.plan.dtypes.parameter))

    def act(self, owner: str, actions: tuple[Action, ...]) -> None:
        """Do what the coordinator decided at a hook; one rank has all parameters at hand."""
        if self._at_hand:
            return
        for action in actions:
            if action.kind == "gather":
                self.fetch(owner, action.parameters, secondary=action.secondary)
            elif action.kind == "take":
                self.copy_out(owner, action.parameters, secondary=action.secondary)
            elif action.kind == "await":
                self.recorder.emit("await parameters", owner, waits=("all-gather",))
            elif action.kind == "drop":
                self.drop(owner, action.parameters, secondary=action.secondary)
            elif action.kind == "keep":
                self._keep(owner, action.parameters)
            else:
                self.release(owner, action)

    @property
    def gather_waits(self) -> tuple[str, ...]:
        """What an all-gather waits for."""
        return ("compute",) if self.plan.choice.deepspeed.overlap_comm is False else ()

    def fetch(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:
        """Gather what a module is about to need."""
        self.gather(owner, places, secondary=secondary)

    def gather(self, owner: str, places: tuple[int, ...], *, secondary: bool = False) -> None:
        """Gather into one flat buffer; if it is for one parameter it becomes the parameter.

        The stream runs ahead of the computation as far as it can: nothing makes it wait, except
        that without `overlap_comm` it joins the compute stream.
        """
        if self._at_hand:
            return
        if self.plan.groups.shard.ranks == 1:
            self._whole_from_host(owner, places)
            return
        size = self.gathered_bytes(places)
        flat = Change("all_gather_buffers", "flat buffer", round_up(size))
        if len(places) == 1:
            flat = Change("unsharded_parameters", "parameter", round_up(size))
        groups = self.plan.groups
        group = groups.secondary if secondary else groups.shard
        inputs = self._from_host(owner, places)
        gone = [-each for each in inputs] if len(places) > 1 else []
        self.recorder.emit(
            "all-gather",
            owner,
            stream="all-gather",
            changes=(flat, *inputs, *gone),
            collective=collective("all_gather", group, size // group.ranks, size),
            waits=self.gather_waits,
        )

    @property
    def _at_hand(self) -> bool:
        """Whether parameters are on the GPU throughout: one rank has them all."""
        return self.plan.groups.shard.ranks == 1 and self.plan.offload.parameters == "none"

    def _from_host(self, owner: str, places: tuple[int, ...]) -> list[Change]:
        """Copy shards from the host, return what they take on the GPU.

        Several are concatenated and go; one alone is sent as it is, and goes when the gather has
        been waited for.
        """
        offload, itemsize = self.plan.offload, self.plan.dtypes.parameter
        if offload.parameters == "none":
            return []
        sizes = [self.shard(place) * itemsize for place in places]
        self.recorder.emit(
            "copy from host",
            owner,
            stream="all-gather",
            transfer=copied(offload, sum(sizes)),
            waits=self._read(owner, sum(sizes)),
        )
        return [Change("all_gather_buffers", "shard", round_up(size)) for size in sizes]

    def _whole_from_host(self, owner: str, places: tuple[int, ...]) -> None:
        """Copy whole parameters from the host to a single GPU (`NoGatherHandle`)."""
        offload = self.plan.offload
        size = sum(self.whole_bytes(place, alone=False) for place in places)
        self.recorder.emit(
            "copy from host",
            owner,
            stream="all-gather",
            changes=(Change("unsharded_parameters", "parameters", size),),
            transfer=copied(offload, self.gathered_bytes(places)),
            waits=self._read(owner, self.gathered_bytes(places)),
        )

    def _read(self, owner: str, size: int) -> tuple[str, ...]:
        """Read what lives on a drive, return what waits for it."""
        if not self.drive_share:
            return ()
        read = Transfer("nvme", size * self.drive_share)
        self.recorder.emit("read", owner, stream="cpu", transfer=read)
        return ("cpu",)

    def copy_out(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:  # noqa: ARG002
        """Copy the parameters of an all-gather out of its flat buffer."""
        if self.plan.groups.shard.ranks == 1:
            return
        if len(places) == 1:
            self.drop_sent(owner, places)
            return
        size = sum(self.whole_bytes(place, alone=False) for place in places)
        self.recorder.emit(
            "copy out",
            owner,
            stream="all-gather",
            changes=(Change("unsharded_parameters", "parameters", size),),
            traffic_bytes=2 * size,
        )

    def drop_sent(self, owner: str, places: Iterable[int]) -> None:
        """Let shards go that came from the host to be gathered one by one."""
        itemsize, ranks = self.plan.dtypes.parameter, self.plan.groups.shard.ranks
        if self.plan.offload.parameters != "none" and ranks > 1:
            size = sum(round_up(self.shard(place) * itemsize) for place in places)
            gone = Change("all_gather_buffers", "shard", -size)
            self.recorder.emit("drop the shard", owner, changes=(gone,))

    def drop(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:  # noqa: ARG002
        """Let the flat buffer go."""
        if len(places) == 1 or self.plan.groups.shard.ranks == 1:
            return
        gone = Change("all_gather_buffers", "flat buffer", -round_up(self.gathered_bytes(places)))
        self.recorder.emit("drop flat buffer", owner, changes=(gone,))

    def _keep(self, owner: str, places: tuple[int, ...]) -> None:
        """Copy this rank's part in its secondary group: of parameters padded to all ranks.

        Source: `_partition_param_sec`.
        """
        size = self._secondary_bytes(places)
        self.recorder.emit(
            "secondary shards",
            owner,
            changes=(Change("parameters", "secondary shards", size),),
            traffic_bytes=3 * size,
        )

    def drop_secondary(self) -> None:
        """Let the secondary shards go, every parameter's: an updated one differs (`_post_step`)."""
        if self.plan.groups.secondary.ranks > 1:
            size = self._secondary_bytes(range(len(self.elements)))
            gone = Change("parameters", "secondary shards", -size)
            self.recorder.emit("drop secondary shards", "parameters", changes=(gone,))

    def _secondary_bytes(self, places: Iterable[int]) -> int:
        parts = self.plan.groups.secondary.ranks
        return int(sum(round_up(self.gathered_bytes((place,)) // parts) for place in places))

    def release(self, owner: str, action: Action) -> None:
        """Free whole parameters, but for those that a checkpoint has just saved.

        Its frames hold `x.detach()` (torch/utils/checkpoint.py, `_recomputation_hook`), which
        shares the storage that DeepSpeed takes away from the parameter.
        """
        gone = {
            place: self.whole_bytes(place, alone=alone)
            for place, alone in zip(action.parameters, action.alone, strict=True)
        }
        self.saved |= {place: size for place, size in gone.items() if place in self.saving}
        self._free(owner, {place: gone[place] for place in gone if place not in self.saving})

    def used(self, owner: str, places: Iterable[int]) -> None:
        """Drop what a checkpoint held of parameters whose gradients are there."""
        self._free(owner, {p: self.saved.pop(p) for p in places if p in self.saved})

    def _free(self, owner: str, sizes: dict[int, int]) -> None:
        size = sum(sizes.values())
        if size:
            gone = Change("unsharded_parameters", "parameters", -size)
            self.recorder.emit("release", owner, changes=(gone,))
