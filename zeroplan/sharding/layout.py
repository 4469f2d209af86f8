"""How many elements a rank holds: padding by framework."""

from collections.abc import Callable, Iterable
from heapq import heapreplace
from itertools import accumulate

from zeroplan.records import dataclass, replace
from zeroplan.units import FP8, Size, ceil_div, round_up
from zeroplan.workload.tape import Parameter

__all__ = [
    "FlatParameter",
    "ParameterGroup",
    "dim0_shard_elements",
    "dim0_shard_shape",
    "flat_shard_elements",
    "packed",
    "per_parameter_shard_elements",
    "unique",
]


Itemsize = Callable[[Parameter], int]
"""Bytes per element of a parameter. [B]"""


def unique(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Leave out parameters that share another one's storage."""
    return tuple(p for p in parameters if p.tied_to is None)


def dim0_shard_elements(parameter: Parameter, ranks: Size) -> Size:
    """Rows of one rank, ceil(dim0 / N), times the rest: every rank stores the padded chunk.

    A scalar counts as one row: FSDP2 asks for it to be a vector of one element.

    Source: FSDPParam._init_sharded_param (torch 2.13). [elements]
    """
    rows = parameter.shape[0] if parameter.shape else 1
    return ceil_div(rows, ranks) * (parameter.elements // rows)


def dim0_shard_shape(shape: tuple[Size, ...], ranks: Size) -> tuple[Size, ...]:
    """Return the shape of the rows that one rank stores. [elements]"""
    rows, *rest = shape or (1,)
    return ceil_div(rows, ranks), *rest


def per_parameter_shard_elements(parameter: Parameter, ranks: Size) -> Size:
    """One rank's part of a parameter cut as a flat vector, ceil(elements / N).

    Source: deepspeed/runtime/zero/partition_parameters.py, _partition_param (0.19.8). [elements]
    """
    return ceil_div(parameter.elements, ranks)


def flat_shard_elements(total: Size, ranks: Size) -> Size:
    """One rank's part of all parameters laid end to end and padded to 2 N elements.

    Source: deepspeed/runtime/zero/stage_1_and_2.py, flatten_dense_tensors_aligned (0.19.8).
    [elements]
    """
    return round_up(total, 2 * ranks) // ranks


def packed(sizes: Iterable[int], ranks: int) -> list[list[int]]:
    """Deal whole parameters to ranks, the largest first, each to the rank that has least so far.

    Source: ZeroRedundancyOptimizer._partition_parameters,
    torch/distributed/optim/zero_redundancy_optimizer.py (2.13). [elements]
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    fill = [(0, rank) for rank in range(ranks)]
    for size in sorted(sizes, reverse=True):
        total, rank = fill[0]
        shares[rank].append(size)
        heapreplace(fill, (total + size, rank))
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatParameter:
    """Parameters laid end to end in one storage that is cut evenly: one FSDP1 unit.

    Source: FlatParamHandle._init_flat_param_and_metadata and _get_shard in
    torch/distributed/fsdp/_flat_param.py (2.13).
    """

    parameters: tuple[Parameter, ...]
    ranks: int
    """Shard group size."""
    alignment: int
    """Every parameter starts at a multiple of this. [elements]"""
    multiple: int
    """The whole is padded to a multiple of this. [elements]"""

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each parameter starts. [elements]"""
        ends = accumulate(
            (p.elements for p in self.parameters),
            lambda end, size: round_up(end, self.alignment) + size,
            initial=0,
        )
        return tuple(round_up(end, self.alignment) for end in ends)[:-1]

    @property
    def elements(self) -> int:
        """Size of the whole, alignment included. [elements]"""
        end = self.starts[-1] + self.parameters[-1].elements
        return int(round_up(end, self.multiple))

    @property
    def shard_elements(self) -> int:
        """Padded elements of one rank. [elements]"""
        return int(ceil_div(self.elements, self.ranks))

    @property
    def pieces(self) -> tuple[int, ...]:
        """What the first rank's shard has of each parameter. [elements]

        Only the last ranks hold padding, so no rank holds more.
        """
        end = self.shard_elements
        return tuple(
            max(0, min(p.elements, end - start))
            for p, start in zip(self.parameters, self.starts, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGroup:
    """Parameters that are gathered and reduced together: one `fully_shard` call."""

    parameters: tuple[Parameter, ...]
    ranks: Size
    """Shard group size."""
    float8: bool = False
    """Whether weights of fp8 layers are gathered in fp8."""

    @property
    def trained(self) -> "ParameterGroup":
        """Those of them that get a gradient."""
        return replace(self, parameters=tuple([p for p in self.parameters if p.trainable]))

    @property
    def shard_elements(self) -> Size:
        """Padded elements of one rank. [elements]"""
        return sum(dim0_shard_elements(p, self.ranks) for p in self.parameters)

    def itemsize_in_use(self, parameter: Parameter, itemsize: int) -> int:
        """Bytes per element of a gathered parameter: fp8's one, or the compute dtype's. [B]"""
        return FP8 if self.float8 and parameter.float8 else itemsize

    def sent_bytes(self, itemsize: Itemsize) -> Size:
        """One rank's input of an all-gather. [B]"""
        return sum(
            dim0_shard_elements(p, self.ranks) * self.itemsize_in_use(p, itemsize(p))
            for p in self.parameters
        )

    def stored_bytes(self, itemsize: Itemsize) -> Size:
        """One rank's padded elements as they are stored, not rounded. [B]"""
        return sum(dim0_shard_elements(p, self.ranks) * itemsize(p) for p in self.parameters)

    def shards_bytes(self, itemsize: Itemsize) -> Size:
        """Each parameter's shard in a storage of its own. [B]"""
        return sum(
            round_up(dim0_shard_elements(p, self.ranks) * itemsize(p)) for p in self.parameters
        )

    def gathered_bytes(self, itemsize: int) -> Size:
        """Size of a flat buffer of all ranks' padded elements. [B]"""
        return round_up(self.shard_elements * self.ranks * itemsize)

    def unsharded_bytes(self, itemsize: Itemsize, parts: int = 1) -> Size:
        """Each whole parameter, padded rows included, or a part of it, in a storage of its own. [B]

        Parameters
        ----------
        parts
            How many ranks share it [count].
        """
        return sum(
            round_up(
                dim0_shard_elements(p, self.ranks)
                * self.ranks
                * self.itemsize_in_use(p, itemsize(p))
                // parts
            )
            for p in self.parameters
        )

    def flat_shard_bytes(self, itemsize: int) -> Size:
        """One rank's padded elements in one storage. [B]"""
        return round_up(self.shard_elements * itemsize)
