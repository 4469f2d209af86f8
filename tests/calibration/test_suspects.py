"""A link far below its profile is told, with what would be about as slow."""

import json
from pathlib import Path

import pytest

from zeroplan.calibration import calibrate_collectives
from zeroplan.calibration.logs import measured_log
from zeroplan.calibration.suspects import Slow, slow_collectives
from zeroplan.comm.collectives import collective_seconds
from zeroplan.hardware import load_catalogue
from zeroplan.records import replace
from zeroplan.report.calibrate import calibration_text
from zeroplan.report.terminal import Page

LOGS = Path(__file__).parent / "logs"
CATALOGUE = load_catalogue()


def slowed(name: str, link_id: str, factor: float = 1.0) -> tuple[Slow, ...]:
    """Return what is slow where a log's times are those of its profile, times a factor."""
    rows, _ = measured_log(LOGS / f"{name}.log", CATALOGUE.link(link_id), CATALOGUE)
    timed = (
        replace(
            row,
            seconds=factor * collective_seconds(row.call, row.wires, in_place=row.in_place),
        )
        for row in rows
    )
    return slow_collectives(timed, CATALOGUE)


@pytest.mark.parametrize(
    ("name", "link", "first"),
    [
        ("sick_sockets_instead_of_infiniband", "ib-ndr400", "TCP sockets, as ethernet-100g"),
        ("sick_one_network_card_of_eight", "ib-ndr400", "1 of 8 NICs"),
        ("sick_no_peer_access_nvlink_unused", "nvlink3", "host memory: no peer access"),
        ("sick_pcie_between_nvlink_gpus", "nvlink3", "PCIe instead of it"),
    ],
)
def test_a_sick_link_is_told_with_its_suspect_first(name: str, link: str, first: str) -> None:
    found = calibrate_collectives(LOGS / f"{name}.log", link)
    (slow,) = found.slow
    assert slow.share < 0.2
    assert slow.suspects[0].words.startswith(first)
    assert slow.suspects[0].bytes_per_second == pytest.approx(
        slow.measured_bytes_per_second, rel=0.3
    )


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("all_gather_2_16_started_by_name", "nvlink4"),
        ("reduce_scatter_mpi_two_nodes", "ib-ndr400"),
        ("all_reduce_2_13_one_node", "nvlink3"),
        ("three_runs_in_one_log", "ib-ndr400"),
        ("pcie_box_two_gpus", "pcie4-no-p2p"),
    ],
)
def test_a_sound_link_is_left_alone(name: str, link: str) -> None:
    assert calibrate_collectives(LOGS / f"{name}.log", link).slow == ()


def test_the_share_tells_half_of_the_links_from_half_of_the_nics() -> None:
    (inside,) = slowed("all_gather_2_16_started_by_name", "nvlink4", 2)
    between_nodes = 1.8  # half of the NICs slow the bytes, not the start
    (between,) = slowed("reduce_scatter_mpi_two_nodes", "ib-ndr400", between_nodes)
    assert inside.suspects[0].words.startswith("half of its links")
    assert between.suspects[0].words.startswith("4 of 8 NICs")


def test_a_link_within_the_band_of_its_profile_is_no_patient() -> None:
    """Sockets on 100 Gbit/s are known within a factor of 1.88 only."""
    assert slowed("reduce_scatter_mpi_two_nodes", "ethernet-100g", 1.7) == ()
    assert slowed("reduce_scatter_mpi_two_nodes", "ib-ndr400", 1.7)


def test_what_no_suspect_explains_has_none() -> None:
    (slow,) = slowed("all_gather_2_16_started_by_name", "nvlink4", 5000)
    assert slow.suspects == ()


def test_a_person_reads_suspects_as_such_at_80_columns() -> None:
    found = calibrate_collectives(LOGS / "sick_one_network_card_of_eight.log", "ib-ndr400")
    text = calibration_text(found, Page(width=80))
    assert "Far below what ib-ndr400 predicts" in text
    assert "Suspects, not findings" in text
    assert max(map(len, text.splitlines())) <= 80
    (slow,) = json.loads(found.to_json())["slow"]
    assert slow["suspects"][0]["words"].startswith("1 of 8 NICs")
