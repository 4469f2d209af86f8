"""ZeRO++ qwZ: parameters cross the wire as int8, with a scale for each group of elements.

Source: `CUDAQuantizer`, `_all_gather_sequential`, `_all_gather_coalesced` and the handles' `wait` in
deepspeed/runtime/zero/partition_parameters.py, csrc/quantization/pt_binding.cpp (0.19.8). The
kernels read and write fp16; other dtypes are cast on both sides. A call that runs beside others
holds its inputs until it is waited for (`TORCH_NCCL_AVOID_RECORD_STREAMS`, 2.13).
"""

from functools import lru_cache
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.schedule.events import collective
from zeroplan.schedule.zero3_parameters import Parameters
from zeroplan.sharding.groups import Group
from zeroplan.units import FP32, ceil_div, round_up
from zeroplan.workload.changes import Category, Change

__all__ = ["QuantizedParameters", "scales_of"]

FP16: Final = 2
HELD: Final[Category] = "all_gather_buffers"
READY: Final[Category] = "unsharded_parameters"
LARGEST_GROUP: Final = 8000
"""`target_group_size`. [elements]"""
LANES: Final = 8
"""Elements that the kernel reads at once: groups are multiples of it."""


@lru_cache(maxsize=4096)
def scales_of(elements: int) -> int:
    """Return into how many groups this many elements are quantised: the fewest that divide them.

    Raises
    ------
    SpecError
        DeepSpeed itself stops at such a number.
    """
    words, rest = divmod(elements, LANES)
    if rest or not words:
        raise SpecError(
            "sharding.deepspeed.zero_quantized_weights = true quantises multiples of 8 elements, "
            f"but a rank's part of what is gathered at once has {elements}: DeepSpeed stops "
            "there. Use another number of GPUs, or a larger stage3_param_persistence_threshold."
        )
    fewest = ceil_div(elements, LARGEST_GROUP)
    return words // next(size for size in range(words // fewest, 0, -1) if words % size == 0)


@dataclass(slots=True)
class QuantizedParameters(Parameters):
    """The parameters of the model under qwZ."""

    @property
    def casts(self) -> bool:
        """Whether parameters are of another dtype than the kernels'."""
        return self.plan.training.compute_dtype != "fp16"

    def whole_bytes(self, place: int, *, alone: bool) -> int:
        """Return the bytes of a parameter: padding does not come out of the kernels."""
        limit = self.plan.choice.deepspeed.stage3_param_persistence_threshold
        persists = self.elements[place] <= limit
        return Parameters.whole_bytes(self, place, alone=alone and persists)

    def fetch(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:
        """Quantise this rank's part, gather it, then its scales."""
        group, part = self._part(places, secondary=secondary)
        payload, scales = self._wire(places, secondary=secondary)
        joined = round_up(part * self.plan.dtypes.parameter) if len(places) > 1 else 0
        cast = round_up(part * FP16) if self.casts else 0
        self.recorder.emit(
            "all-gather",
            owner,
            stream="all-gather",
            changes=(
                Change(HELD, "int8 buffer", round_up(payload * group.ranks)),
                Change(HELD, "part", joined),
                Change(HELD, "fp16 part", cast),
                *([Change(HELD, "part", -joined)] if cast else []),
                Change(HELD, "quantised part", round_up(scales) + round_up(payload)),
                Change(HELD, "fp16 part", -cast),
                *([] if cast else [Change(HELD, "part", -joined)]),
                Change(HELD, "scales", round_up(scales * group.ranks)),
            ),
            collective=collective("all_gather", group, payload, payload * group.ranks),
            traffic_bytes=2 * joined + 2 * cast + part * (FP16 + 1),
            waits=self.gather_waits,
        )
        self.recorder.emit(
            "all-gather scales",
            owner,
            stream="all-gather",
            collective=collective("all_gather", group, scales, scales * group.ranks),
        )

    def copy_out(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:
        """Dequantise, then cut the parameters out; a single one is there with that."""
        payload, scales = self._wire(places, secondary=secondary)
        flat = round_up(self._flat_elements(places) * FP16)
        changes = [Change(HELD, "quantised part", -round_up(scales) - round_up(payload))]
        if len(places) > 1:
            changes.append(Change(HELD, "fp16 buffer", flat))
        for place in places:
            cut = round_up(self.elements[place] * FP16)
            changes.append(Change(READY, "parameters", cut))
            if self.casts:
                size = self.whole_bytes(place, alone=False)
                changes += [Change(READY, "parameters", size), Change(READY, "parameters", -cut)]
        copied = flat + 2 * sum(change.bytes for change in changes if change.category == READY)
        self.recorder.emit(
            "dequantise",
            owner,
            stream="all-gather",
            changes=tuple(changes),
            traffic_bytes=copied + flat // FP16,
        )

    def drop(self, owner: str, places: tuple[int, ...], *, secondary: bool) -> None:
        """Let the buffers of an all-gather go."""
        group, _ = self._part(places, secondary=secondary)
        flat = round_up(self._flat_elements(places) * FP16) if len(places) > 1 else 0
        gone = [
            Change(HELD, name, -size)
            for name, size in zip(
                ("int8 buffer", "scales"),
                (round_up(each * group.ranks) for each in self._wire(places, secondary=secondary)),
                strict=True,
            )
        ]
        gone.append(Change(HELD, "fp16 buffer", -flat))
        self.recorder.emit("drop flat buffer", owner, changes=tuple(gone))

    def _flat_elements(self, places: tuple[int, ...]) -> int:
        return int(sum(self.shard(place) for place in places) * self.plan.groups.shard.ranks)

    def _part(self, places: tuple[int, ...], *, secondary: bool) -> tuple[Group, int]:
        """Return the group of an all-gather, and what a rank of it brings [elements]."""
        groups = self.plan.groups
        group = groups.secondary if secondary else groups.shard
        return group, int(self._flat_elements(places) // group.ranks)

    def _wire(self, places: tuple[int, ...], *, secondary: bool) -> tuple[int, int]:
        """Return the bytes of a rank's payload and of its scales [B]."""
        _, part = self._part(places, secondary=secondary)
        return part, scales_of(part) * FP32
