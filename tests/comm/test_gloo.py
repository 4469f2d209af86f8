"""What gloo makes of collectives: all-reduces for reduce-scatters, figures of its own, no overlap."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan import estimate
from zeroplan.backtesting.collectives import collective_of
from zeroplan.comm.collectives import collective_seconds, collective_uncertainty
from zeroplan.comm.fabric import Fabric
from zeroplan.comm.gloo import on_the_wire
from zeroplan.estimation.resolve import resolve
from zeroplan.hardware import Quantity
from zeroplan.records import replace
from zeroplan.schedule.events import CollectiveName
from zeroplan.sharding.groups import Group, contiguous
from zeroplan.spec.toml import load_spec

KEYS: dict[str, Any] = {"model": "8b", "strategy": "fsdp2", "gpus": 16, "link": "ethernet-10g"}
RATES = {"all_gather": 20e6, "reduce_scatter": 30e6, "all_reduce": 35e6, "broadcast": 36e6}
STEP = 2e-3


@cache
def wires(backend: str = "gloo") -> Fabric:
    """Two nodes with a GPU each, whose link has gloo's figures."""
    plain = resolve(
        load_spec(model="8b", gpus=2, gpus_per_node=1, link="ethernet-1g", backend=backend)
    ).wires
    return replace(
        plain,
        inter=replace(
            plain.inter,
            gloo_bytes_per_second={name: figure(each, "B/s") for name, each in RATES.items()},
            gloo_step_seconds={name: figure(STEP, "s") for name in RATES},
        ),
    )


def figure(value: float, unit: str) -> Quantity:
    return Quantity(value=value, unit=unit, kind="fitted", source="judgement", rel_uncertainty=0.2)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_sends_what_was_counted_on_a_loopback(ranks: int) -> None:
    """Payload of all ranks over the message: torch 2.13, `/proc/net/dev` less 66 B a packet."""
    counted = {
        "all_gather": {2: 1.000, 3: 2.000, 4: 3.000},
        "reduce_scatter": {2: 2.000, 3: 4.000, 4: 5.999},
        "all_reduce": {2: 2.000, 3: 4.000, 4: 5.999},
        "broadcast": {2: 1.000, 3: 2.000, 4: 2.999},
    }
    group = contiguous("world", ranks, 1)
    for name, by_ranks in counted.items():
        sent = on_the_wire(collective_of(name, group, 12 * 2**20), wires()).wire_bytes
        assert ranks * sent / (12 * 2**20) == pytest.approx(by_ranks[ranks], rel=1e-3)


def test_nccl_reduce_scatters_in_a_ring() -> None:
    one = collective_of("reduce_scatter", contiguous("world", 4, 1), 2**20)
    assert on_the_wire(one, wires("nccl")) is one


@given(st.sampled_from(sorted(RATES)), st.integers(min_value=2**16, max_value=2**30))
def test_each_collective_has_steps_and_a_rate_of_its_own(name: CollectiveName, size: int) -> None:
    """Between two ranks: one step of a gather or a tree, two of an all-reduce."""
    one = collective_of(name, contiguous("world", 2, 1), size)
    both = name in ("reduce_scatter", "all_reduce")
    whole = size if both or name == "broadcast" else size / 2
    expected = (1 + both) * STEP + whole / RATES[name]
    assert collective_seconds(one, wires()) == pytest.approx(expected, rel=1e-4)
    assert collective_uncertainty(one, wires()) == 0.2


def test_ranks_that_share_a_node_share_its_bandwidth() -> None:
    """A replicate group with one rank of each node has an eighth of what all eight have."""
    shared = replace(wires(), gpus_per_node=8)
    strided = Group(name="replicate", ranks=2, nodes=2, ranks_per_node=1)
    whole = collective_seconds(collective_of("all_reduce", strided, 2**24), wires()) - 2 * STEP
    part = collective_seconds(collective_of("all_reduce", strided, 2**24), shared) - 2 * STEP
    assert part == pytest.approx(8 * whole)


def test_a_step_over_gloo_waits_for_every_collective_and_reduces_twice_the_bytes() -> None:
    gloo, nccl = (estimate(**KEYS, backend=each).estimates[0] for each in ("gloo", "nccl"))
    reduced = [
        sum(each.wire_bytes for each in one.communication.collectives if "reduce" in each.name)
        for one in (gloo, nccl)
    ]
    assert reduced[0] == pytest.approx(2 * reduced[1])
    counts = [[each.output_bytes for each in one.communication.collectives] for one in (gloo, nccl)]
    assert counts[0] == counts[1]
    assert gloo.time.exposed_communication_seconds == pytest.approx(
        gloo.time.communication_seconds, rel=0.01
    )
    assert (gloo.time.step_seconds or 0) > (nccl.time.step_seconds or 0) > 0


def test_gloo_makes_no_communicators_of_nccl() -> None:
    gloo, nccl = (estimate(**KEYS, backend=each) for each in ("gloo", "nccl"))
    held = [each.estimates[0].memory.device_bytes or 0 for each in (nccl, gloo)]
    (each,) = [x.value for x in nccl.assumptions if "NCCL memory" in x.name]
    assert held[0] - held[1] == each
    assert not [x for x in gloo.assumptions if "NCCL memory" in x.name]


def test_an_answer_says_where_a_link_has_no_figures_of_gloo() -> None:
    gloo, nccl = (estimate(**KEYS, backend=each) for each in ("gloo", "nccl"))
    assert [x.name for x in gloo.assumptions if "gloo" in x.name] == [
        "nvlink4: gloo",
        "ethernet-10g: gloo",
    ]
    assert not [x for x in nccl.assumptions if "gloo" in x.name]
