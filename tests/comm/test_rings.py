"""Rings through nodes: which links they share, and what that makes of one block of a 70B model."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.backtesting.collectives import collective_of
from zeroplan.comm.algorithms import tree_seconds
from zeroplan.comm.collectives import collective_seconds, inter_node_wire_bytes
from zeroplan.comm.fabric import Fabric, network_bandwidth, ring_bandwidth
from zeroplan.comm.protocols import Steps, low_latency_chosen
from zeroplan.estimation.resolve import resolve
from zeroplan.records import replace
from zeroplan.schedule.events import CollectiveName
from zeroplan.sharding.groups import Group, contiguous, groups
from zeroplan.spec.toml import load_spec

BLOCK_BYTES = 1_711_308_800
"""Of one Llama-2-70B block in bf16."""
NAMES: tuple[CollectiveName, ...] = ("all_gather", "reduce_scatter", "all_reduce")
EVERY: tuple[CollectiveName, ...] = (*NAMES, "broadcast", "reduce", "all_to_all")
LINKS = ("ib-hdr200", "roce-400", "slingshot-11", "ethernet-10g", "ethernet-100g", "nvlink3")


@cache
def a100s(link: str = "ib-hdr200") -> Fabric:
    return resolve(load_spec(model="70b", gpus=64, gpu="a100-sxm4-80gb", link=link)).wires


@pytest.mark.published
def test_a_ring_of_the_whole_world_has_every_nic_of_a_node() -> None:
    """A 70B block on 64 A100s over HDR: SimAI 9.0 ms, llm-analysis 8.4 ms with all 8 NICs."""
    assert _seconds("all_gather", contiguous("world", 64, 8)) == pytest.approx(9.5e-3, rel=0.06)


@pytest.mark.published
def test_a_ring_with_one_rank_per_node_has_one_nic() -> None:
    """There torch-inductor says 37 ms, calculon 76 ms, DTensor's cost model 87 ms."""
    replicate = groups(gpus=64 * 8, gpus_per_node=8, shard_size=8).replicate
    assert (replicate.ranks, replicate.ranks_per_node) == (64, 1)
    ratio = _seconds("all_gather", replicate) / _seconds("all_gather", contiguous("world", 64, 8))
    assert 4 < ratio <= 8.5


@pytest.mark.published
def test_a_ring_inside_a_node_has_nvlink() -> None:
    """SimAI's 240 GB/s of an A100 node give 6.2 ms; the sweeps reach nine tenths of it."""
    inside = _seconds("all_gather", contiguous("world", 8, 8))
    assert 6.2e-3 <= inside <= 1.15 * 6.2e-3


@pytest.mark.published
def test_bandwidth_falls_with_the_ranks_per_node() -> None:
    """Galvatron's all-reduces over 2 nodes of 8, by ranks of a group per node (its shipped JSON)."""
    measured = {8: 44.7, 4: 20.8, 2: 16.2, 1: 8.13}
    found = {n: ring_bandwidth(_strided(n), a100s()) for n in measured}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    for n, bandwidth in measured.items():
        ratio = found[n] / found[8] / (bandwidth / measured[8])
        assert 1 / 1.5 < ratio < 1.5


@given(st.sampled_from([1, 2, 4, 8]), st.integers(min_value=2, max_value=64))
def test_the_nics_are_shared_evenly(members: int, nodes: int) -> None:
    """So a strided group has its ranks' share of the node, whatever its length."""
    wires = a100s("ethernet-100g")  # slow enough never to be bound inside the node
    group = Group(name="replicate", ranks=members * nodes, nodes=nodes, ranks_per_node=members)
    whole = ring_bandwidth(contiguous("world", 8 * nodes, 8), wires)
    assert ring_bandwidth(group, wires) == pytest.approx(whole * members / 8)


@given(
    st.sampled_from(EVERY),
    st.sampled_from(LINKS),
    st.integers(min_value=1, max_value=2**34),
    st.integers(min_value=1, max_value=2**34),
    st.integers(min_value=1, max_value=128),
)
def test_more_bytes_take_no_less_time(
    name: CollectiveName, link: str, size: int, more: int, nodes: int
) -> None:
    group, wires = contiguous("world", 8 * nodes, 8), a100s(link)
    few, many = (
        collective_seconds(collective_of(name, group, 8 * nodes * each), wires)
        for each in (size, size + more)
    )
    assert few <= many


@given(
    st.sampled_from(EVERY),
    st.sampled_from(LINKS[:-1]),
    st.integers(min_value=2**26, max_value=2**34),
)
def test_fewer_ranks_per_node_have_less_of_its_nics(
    name: CollectiveName, link: str, size: int
) -> None:
    """The same nodes and bytes: one rank each is slowest, unless the steps of more decide."""
    wires = a100s(link)
    groups_ = [
        Group(name="replicate", ranks=4 * members, nodes=4, ranks_per_node=members)
        for members in (8, 4, 2, 1)
    ]
    times = [collective_seconds(collective_of(name, each, size), wires) for each in groups_]
    if name != "all_to_all":  # fewer ranks have fewer parts to send out
        assert times[0] < times[-1]
        assert network_bandwidth(groups_[0], wires) > network_bandwidth(groups_[-1], wires)


@given(st.sampled_from(EVERY), st.integers(min_value=2**26, max_value=2**34))
def test_an_oversubscribed_network_is_slower_and_a_node_is_not(
    name: CollectiveName, size: int
) -> None:
    thin = replace(a100s(), oversubscription=4.0)
    for nodes, slower in ((1, False), (4, True)):
        call = collective_of(name, contiguous("world", 8 * nodes, 8), size)
        ratio = collective_seconds(call, thin) / collective_seconds(call, a100s())
        assert 1.5 < ratio <= 4 if slower else ratio == 1


def test_switches_sum_faster_than_a_ring_does() -> None:
    """NVLink SHARP: H100 nodes, whose all-reduces reach more than the line rate of their links."""
    wires = resolve(load_spec(model="70b", gpus=16, gpu="h100-sxm5-80gb", link="ib")).wires
    plain = replace(wires, intra=replace(wires.intra, switch_efficiency=None))
    for ranks in (8, 16):
        call = collective_of("all_reduce", contiguous("world", ranks, 8), 2**32)
        assert collective_seconds(call, wires) < 0.9 * collective_seconds(call, plain)
        assert call.wire_bytes / collective_seconds(call, wires) > 450e9


def test_trees_grow_with_the_logarithm_of_the_nodes() -> None:
    """Slingshot: an all-reduce of 1 KiB took 0.24 ms on 1024 GPUs, an all-gather 8 ms."""
    wires = replace(a100s("slingshot-11"), gpus_per_node=4)
    group = contiguous("world", 1024, 4)
    reduce, gather = (
        collective_seconds(collective_of(name, group, 2**10), wires)
        for name in ("all_reduce", "all_gather")
    )
    assert reduce == pytest.approx(0.24e-3, rel=0.3)
    assert gather == pytest.approx(8e-3, rel=0.3)


def test_an_all_to_all_sends_most_of_its_bytes_out() -> None:
    call = collective_of("all_to_all", contiguous("world", 64, 8), BLOCK_BYTES)
    assert inter_node_wire_bytes(call) == BLOCK_BYTES * 56 / 64
    out = 8 * inter_node_wire_bytes(call) / network_bandwidth(call.group, a100s())
    assert float(collective_seconds(call, a100s())) == pytest.approx(out, rel=0.05)


@pytest.mark.published
def test_the_ramp_falls_with_the_ranks_as_a_simulator_has_it() -> None:
    """SimAI's shares of the peak bandwidth at 128 MiB (nic_ratio.csv at cef83f9d), 8 x 400 Gbit/s."""
    shares = {32: 0.67, 64: 0.54, 128: 0.38, 256: 0.205, 512: 0.107}
    wires = resolve(load_spec(model="70b", gpus=64, gpu="h100-sxm5-80gb", link="ib-ndr400")).wires
    for ranks, share in shares.items():
        call = collective_of("all_gather", contiguous("world", ranks, 8), 2**27)
        found = call.wire_bytes / collective_seconds(call, wires)
        assert found / 375e9 == pytest.approx(share, rel=0.25)


@pytest.mark.published
def test_a_measured_step_needs_more_than_one_nic_per_ring() -> None:
    """MPT-70B on 32 H100: 4.64 s a micro-step, in which two all-gathers of 125 GB fit (T24)."""
    wires = resolve(load_spec(model="70b", gpus=32, gpu="h100-sxm5-80gb", link="ib")).wires
    call = collective_of("all_gather", contiguous("world", 32, 8), BLOCK_BYTES)
    assert call.wire_bytes / collective_seconds(call, wires) > 54e9


@given(st.sampled_from(NAMES), st.integers(min_value=1, max_value=2**34))
def test_more_nodes_take_no_less_time(name: CollectiveName, size: int) -> None:
    seconds = [_seconds(name, contiguous("world", 8 * n, 8), size) for n in (1, 2, 4, 16, 128)]
    assert seconds == sorted(seconds)


@given(st.integers(min_value=1, max_value=2**34), st.integers(min_value=2, max_value=512))
def test_an_all_reduce_sends_what_a_reduce_scatter_and_an_all_gather_do(
    size: int, ranks: int
) -> None:
    group = contiguous("world", ranks, 8)
    gather, scatter, reduce = (collective_of(name, group, size).wire_bytes for name in NAMES)
    assert reduce == gather + scatter == pytest.approx(2 * size * (ranks - 1) / ranks)


def test_a_ring_leaves_each_node_once() -> None:
    """One rank's traffic in eight goes out, and none where there is one node."""
    call = collective_of("all_gather", contiguous("world", 64, 8), BLOCK_BYTES)
    assert inter_node_wire_bytes(call) == call.wire_bytes / 8
    assert inter_node_wire_bytes(collective_of("all_gather", contiguous("world", 8, 8), 2**20)) == 0


@pytest.mark.published
@pytest.mark.parametrize(
    ("gpu", "link", "nodes", "name", "sizes"),
    [
        ("a100-sxm4-80gb", "nvlink", 1, "all_gather", (8, 16)),
        ("h100-sxm5-80gb", "nvlink", 1, "all_gather", (16, 32)),
        ("b200-sxm", "nvlink", 1, "all_gather", (32, 64)),
        ("a100-sxm4-80gb", "ib-hdr200", 2, "all_gather", (32, 64)),
        ("a100-sxm4-80gb", "ib-hdr200", 2, "all_reduce", (64, 128)),
        ("h100-sxm5-80gb", "gcp-tcpxo-200", 2, "all_gather", (32, 64)),
        ("h200-sxm-141gb", "roce-400", 2, "all_gather", (64, 128)),
    ],
)
def test_simple_begins_where_sweeps_jump(
    gpu: str, link: str, nodes: int, name: CollectiveName, sizes: tuple[int, int]
) -> None:
    """The sizes [MiB] on either side of the jump in busbw (aiconfigurator, Argonne, Google)."""
    outer = "roce-400" if link == "nvlink" else link
    wires = resolve(load_spec(model="70b", gpus=16, gpu=gpu, link=outer)).wires
    group = contiguous("world", 8 * nodes, 8)
    passes = 2 if name == "all_reduce" else 1
    for mib, stays in zip(sizes, (True, False), strict=True):
        call = collective_of(name, group, mib * 2**20)
        steps = Steps(
            inside=passes * (group.ranks - nodes),
            between=passes * (nodes - 1),
            links=call.wire_bytes / ring_bandwidth(group, wires),
        )
        several = nodes > 1
        assert low_latency_chosen(wires, steps, several=several, reduces=passes == 2) == stays


@pytest.mark.published
def test_trees_of_two_nodes_send_once_and_others_twice() -> None:
    """GB200 racks: 42.07 ms for 16 GiB on two NVLink domains, 84.6 ms on twenty (CoreWeave).

    Twice as long, so something between the racks decides; here it is an oversubscribed network.
    """
    wires = a100s("ib-hdr200")
    thin = replace(wires, oversubscription=16.0)
    two, twenty = (
        float(tree_seconds(collective_of("all_reduce", contiguous("world", 8 * n, 8), 2**34), thin))
        for n in (2, 20)
    )
    assert twenty / two == pytest.approx(84.625 / 42.067, rel=0.02)


def _strided(members: int) -> Group:
    return Group(name="replicate", ranks=2 * members, nodes=2, ranks_per_node=members)


def _seconds(name: CollectiveName, group: Group, size: int = BLOCK_BYTES) -> float:
    return float(collective_seconds(collective_of(name, group, size), a100s()))
