"""How FSDP1 lays parameters end to end, and how ZeroRedundancyOptimizer deals them out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.sharding.layout import FlatParameter, packed
from zeroplan.workload.tape import Parameter

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=20)


def test_original_parameters_start_at_16_bytes_and_the_whole_is_padded_to_the_group() -> None:
    """In bf16 16 bytes are 8 elements: 0..2, 8..12, 16..20, then up to a multiple of 4."""
    flat = _flat([3, 5, 5], ranks=4, alignment=8, multiple=4)
    assert flat.starts == (0, 8, 16)
    assert flat.elements == 24
    assert flat.shard_elements == 6
    assert flat.pieces == (3, 0, 0)


def test_flat_parameters_lie_close_and_the_last_shard_is_padded() -> None:
    flat = _flat([3, 5, 5], ranks=4, alignment=1, multiple=1)
    assert flat.starts == (0, 3, 8)
    assert flat.elements == 13
    assert flat.shard_elements == 4
    assert flat.pieces == (3, 1, 0)


@given(sizes=SIZES, ranks=st.integers(1, 16), alignment=st.sampled_from([1, 4, 8]))
def test_the_first_shard_holds_no_padding_but_alignment(
    sizes: list[int], ranks: int, alignment: int
) -> None:
    flat = _flat(sizes, ranks=ranks, alignment=alignment, multiple=ranks)
    assert flat.shard_elements * ranks == flat.elements
    assert 0 <= flat.shard_elements - sum(flat.pieces) < alignment * len(sizes) + ranks


@given(sizes=SIZES, ranks=st.integers(1, 16))
def test_dealing_keeps_every_parameter_and_is_uneven_by_one_at_most(
    sizes: list[int], ranks: int
) -> None:
    """The fullest rank got its last parameter when no other had less."""
    shares = packed(sizes, ranks)
    assert sorted(size for share in shares for size in share) == sorted(sizes)
    fullest = max(shares, key=sum)
    assert sum(fullest) - fullest[-1] <= min(map(sum, shares))


def test_the_largest_parameter_is_dealt_first() -> None:
    assert packed([1, 5, 3, 3], 2) == [[5, 1], [3, 3]]


@pytest.mark.parametrize("ranks", [1, 3])
def test_one_rank_gets_everything_and_spare_ranks_nothing(ranks: int) -> None:
    assert packed([7], ranks) == [[7], *([[]] * (ranks - 1))]


def _flat(sizes: list[int], *, ranks: int, alignment: int, multiple: int) -> FlatParameter:
    parameters = (Parameter(name=str(i), shape=(n,), role="other") for i, n in enumerate(sizes))
    return FlatParameter(
        parameters=tuple(parameters), ranks=ranks, alignment=alignment, multiple=multiple
    )
