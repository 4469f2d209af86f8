"""ZeRO++, MiCS and NVMe are priced: by what crosses each link, and by the kernels in between."""

from typing import Any

import pytest

from zeroplan.compute.offload import NVME
from zeroplan.estimation import estimate
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.spec.toml import load_spec

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "strategy": "zero3",
    "gpus": 64,
    "link": "ethernet-100g",
    "stage3_max_reuse_distance": 0,
}
PARAMETERS = 8_030_261_248
HPZ: dict[str, Any] = {"zero_hpz_partition_size": 8}
QWZ: dict[str, Any] = {"zero_quantized_weights": True}
QGZ: dict[str, Any] = {"zero_quantized_gradients": True}
MICS: dict[str, Any] = {"mics_shard_size": 8, "version": "0.19.6"}


def found(**keys: Any) -> StrategyEstimate:
    (one,) = estimate(**ASKED | keys).estimates
    return one


def seconds(told: StrategyEstimate, phase: str, name: str, group: str = "") -> float:
    calls = told.communication.collectives
    return sum(
        call.seconds or 0.0
        for call in calls
        if (call.phase, call.name) == (phase, name) and group in (call.group, "")
    )


@pytest.mark.published
def test_zero_plus_plus_sends_a_quarter_between_nodes() -> None:
    """3 M become 0.75 M: half for qwZ, none for hpZ, a quarter for qgZ (arXiv 2306.10209, table 1).

    Norms and scales are what is over; a rank's own part is what is under.
    """
    plain, plus = found(), found(**HPZ, **QWZ, **QGZ)
    ratio = plus.communication.inter_node_wire_bytes / plain.communication.inter_node_wire_bytes
    assert ratio == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("keys", [HPZ, QWZ, QGZ, MICS, {**HPZ, **QWZ, **QGZ}])
def test_each_of_them_shortens_a_step_that_waits_for_the_network(keys: dict[str, Any]) -> None:
    plain, other = found(), found(**keys)
    assert plain.time.bound_by == "communication"
    assert (other.time.step_seconds or 0.0) < 0.8 * (plain.time.step_seconds or 0.0)


def test_quantised_weights_take_half_the_time_and_their_scales() -> None:
    plain, quantised = (seconds(found(**k), "forward", "all_gather") for k in ({}, QWZ))
    assert 0.5 * plain < quantised < 0.55 * plain


def test_a_second_copy_is_gathered_over_nvlink() -> None:
    inside = seconds(found(**HPZ), "backward", "all_gather", "secondary")
    across = seconds(found(), "backward", "all_gather", "shard")
    alone = seconds(found(gpus=8), "backward", "all_gather", "shard")
    assert inside < across / 20
    assert inside == pytest.approx(alone, rel=0.05)


def test_quantised_gradients_take_an_eighth_of_a_nodes_bytes_through_its_nics() -> None:
    """int4 is a quarter of bf16; an all-to-all sends seven of eight parts out of a node."""
    plain, quantised = found(), found(**QGZ)
    before = seconds(plain, "backward", "reduce_scatter")
    across = seconds(quantised, "backward", "all_to_all", "inter")
    assert before / 5 < across < before / 2
    assert 0 < seconds(quantised, "backward", "all_to_all", "intra") < across


def test_mics_gathers_inside_its_groups_and_sums_across_them() -> None:
    told = found(**MICS)
    assert seconds(told, "forward", "all_gather") < seconds(found(), "forward", "all_gather") / 20
    assert seconds(told, "backward", "all_reduce", "replicate") > 1
    assert told.time.bound_by == "communication"


@pytest.mark.parametrize(
    ("keys", "names", "bytes_each"),
    [(QWZ, ("dequantise",), 2 * 3), (QGZ, ("all-to-all",), 2.5)],
    ids=["qwZ", "qgZ"],
)
def test_kernels_that_quantise_read_and_write(
    keys: dict[str, Any], names: tuple[str, ...], bytes_each: float
) -> None:
    """Twice a step int8 is read and fp16 written; once fp16 is read and int4 written."""
    question = resolve(load_spec(**ASKED | keys, precision="fp16-mixed"))
    calls = script(plan_for(question, question.strategies[0], {})).calls()
    traffic = sum(times * event.traffic_bytes for event, times in calls if event.name in names)
    assert bytes_each * 0.95 * PARAMETERS < traffic < 3 * bytes_each * PARAMETERS


def test_states_on_a_drive_are_read_and_written_at_its_rate() -> None:
    """Master, momentum and variance go both ways, an fp32 gradient one way or both."""
    asked: dict[str, Any] = {"gpus": 8, "link": "ib"}
    drive, host = (found(**asked, offload_optimizer=where).time for where in ("nvme", "cpu"))
    per_parameter = ((drive.offload_seconds or 0) - (host.offload_seconds or 0)) * (
        NVME.value / PARAMETERS
    )
    assert 24 <= per_parameter <= 32
    assert drive.bound_by == "offload"
    assert (drive.exposed_offload_seconds or 0) > (host.exposed_offload_seconds or 0)


@pytest.mark.parametrize(("room", "low", "high"), [(0, 5.5, 6), (10**12, 0, 0)])
def test_parameters_on_a_drive_are_read_for_every_gather_and_written_once(
    room: int, low: float, high: float
) -> None:
    """2 bytes in forward, 2 in backward but for what stays gathered, 2 after the update.

    What `max_in_cpu` has room for stays in memory.
    """
    asked: dict[str, Any] = {"gpus": 8, "offload_optimizer": "nvme"}
    on_drive, in_memory = (
        found(**asked, **keys).time.offload_seconds or 0.0
        for keys in (
            {"offload_parameters": "nvme", "offload_param_max_in_cpu": room},
            {"offload_parameters": "cpu"},
        )
    )
    per_parameter = (on_drive - in_memory) * NVME.value / PARAMETERS
    assert low - 1e-6 <= per_parameter <= high + 1e-6
