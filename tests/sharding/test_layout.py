"""Padding, against oracles that place every element or row on its rank."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from zeroplan.sharding.layout import (
    ParameterGroup,
    dim0_shard_elements,
    flat_shard_elements,
    per_parameter_shard_elements,
    unique,
)
from zeroplan.workload.tape import Parameter

RANKS = st.integers(min_value=1, max_value=40)
SHAPES = st.lists(st.integers(min_value=1, max_value=30), min_size=1, max_size=3).map(tuple)


@given(SHAPES, RANKS)
def test_rows_are_dealt_out_as_torch_chunk_does(shape: tuple[int, ...], ranks: int) -> None:
    """Chunks of ceil(rows / N) rows; the first rank has a full one, the last may have none."""
    parameter = _parameter(shape)
    size = ceil(shape[0] / ranks)
    chunks = [range(shape[0])[i : i + size] for i in range(0, shape[0], size)]
    row = parameter.elements // shape[0]
    assert dim0_shard_elements(parameter, ranks) == len(chunks[0]) * row
    assert len(chunks) <= ranks


@given(SHAPES, RANKS)
def test_elements_are_dealt_out_evenly(shape: tuple[int, ...], ranks: int) -> None:
    parameter = _parameter(shape)
    dealt = [0] * ranks
    for element in range(parameter.elements):
        dealt[element % ranks] += 1
    assert per_parameter_shard_elements(parameter, ranks) == max(dealt)


@given(st.integers(min_value=1, max_value=10**12), RANKS)
def test_a_flat_partition_covers_everything_with_pairs_of_elements(total: int, ranks: int) -> None:
    share = flat_shard_elements(total, ranks)
    assert share % 2 == 0
    assert 0 <= share * ranks - total < 2 * ranks


@given(st.lists(SHAPES, min_size=1, max_size=9), RANKS, st.sampled_from([2, 4]))
def test_a_group_is_its_parameters(
    shapes: list[tuple[int, ...]], ranks: int, itemsize: int
) -> None:
    """The flat buffers are one storage, the parameters one each; both are rounded up to 512."""
    group = ParameterGroup(parameters=tuple(map(_parameter, shapes)), ranks=ranks)
    shards = [ceil(shape[0] / ranks) * _parameter(shape[1:]).elements for shape in shapes]
    assert group.shard_elements == sum(shards)
    assert group.flat_shard_bytes(itemsize) == _rounded(sum(shards) * itemsize)
    assert group.gathered_bytes(itemsize) == _rounded(ranks * sum(shards) * itemsize)
    assert group.shards_bytes(lambda _: itemsize) == sum(_rounded(s * itemsize) for s in shards)
    assert group.unsharded_bytes(lambda _: itemsize) == sum(
        _rounded(ranks * s * itemsize) for s in shards
    )


def test_experts_fewer_than_ranks_are_padded_to_one_each() -> None:
    """8 experts on 64 ranks take eightfold room (torchtitan then shards another dimension)."""
    experts = _parameter((8, 64, 64))
    assert 64 * dim0_shard_elements(experts, 64) == 8 * experts.elements


def test_a_tied_weight_is_held_where_it_is_tied_to() -> None:
    embedding = _parameter((8, 2))
    head = Parameter(name="head", shape=(8, 2), role="head", tied_to="embedding")
    assert unique((embedding, head)) == (embedding,)


def _parameter(shape: tuple[int, ...]) -> Parameter:
    return Parameter(name="weight", shape=shape, role="other")


def _rounded(size: int) -> int:
    return ceil(size / 512) * 512
