"""Process groups, against an oracle that lists every rank and the node it stands in."""

from hypothesis import given
from hypothesis import strategies as st

from zeroplan.sharding.groups import Group, groups


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.integers(min_value=1, max_value=12),
    st.sampled_from([1, 2, 4, 8, 16, 24]),
)
def test_groups_are_neighbours_and_what_lies_a_shard_group_apart(
    per_node: int, nodes: int, shard_size: int
) -> None:
    gpus = per_node * nodes
    if gpus % shard_size:
        return
    found = groups(
        gpus=gpus, gpus_per_node=per_node, shard_size=shard_size, secondary_size=shard_size
    )
    _holds(found.shard, range(shard_size), per_node)
    _holds(found.secondary, range(shard_size), per_node)
    _holds(found.replicate, range(0, gpus, shard_size), per_node)
    _holds(found.world, range(gpus), per_node)


def _holds(group: Group, members: range, per_node: int) -> None:
    standing = [rank // per_node for rank in members]
    assert group.ranks == len(members)
    assert group.nodes == len(set(standing))
    assert group.ranks_per_node == standing.count(0)
