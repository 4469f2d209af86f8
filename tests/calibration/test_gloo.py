"""Gloo's figures of a link come back from what they made, for each collective by itself."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from zeroplan.backtesting.collectives import measured_collectives
from zeroplan.calibration import calibrate_collectives
from zeroplan.calibration.fit import value_of
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.profile import Link
from zeroplan.hardware.read import read_profile

RATES = {"all_gather": 23.7e6, "reduce_scatter": 34.3e6, "all_reduce": 34.9e6}
"""As on a veth pair of 300 Mbit/s. [B/s]"""
STEP_SECONDS = 1e-3
SIZES = [2**k for k in range(18, 25)]


def rows(nodes: int = 2) -> list[dict[str, object]]:
    """What these figures make of each collective between `nodes` ranks."""
    lines = []
    for name, rate in RATES.items():
        passes = 1 if name == "all_gather" else 2
        for size in SIZES:
            sent = passes * size * (nodes - 1) / nodes
            seconds = passes * (nodes - 1) * STEP_SECONDS + sent / rate
            lines.append(row(collective=name, message_bytes=size, time_us=f"{seconds * 1e6:.1f}"))
    return lines


def row(**changes: object) -> dict[str, object]:
    base = {
        "id": "r",
        "source": "a lab",
        "fabric": "ethernet",
        "backend": "gloo",
        "gpu": "",
        "n_gpus": 2,
        "gpus_per_node": 1,
        "n_nodes": 2,
        "intra_link": "",
        "inter_link": "ethernet-1g",
    }
    return {**base, **changes}


def written(lines: list[dict[str, object]], folder: Path) -> Path:
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


def test_its_figures_come_back(tmp_path: Path) -> None:
    found = calibrate_collectives(written(rows(), tmp_path), "ethernet-1g", name="ours")
    assert set(found.link.gloo_bytes_per_second) == set(RATES)
    for each in found.constants:
        made = RATES[str(each.entry)] if each.field.endswith("per_second") else STEP_SECONDS
        assert value_of(found.link, each) == pytest.approx(made, rel=0.05)
    assert (
        found.link.bandwidth_efficiency == load_catalogue().link("ethernet-1g").bandwidth_efficiency
    )
    assert "0 of 4 points needed" in found.kept["bandwidth_efficiency"]


def test_the_new_profile_is_read_and_used(tmp_path: Path) -> None:
    found = calibrate_collectives(written(rows(), tmp_path), "ethernet-1g", name="ours")
    path = tmp_path / "ours.toml"
    path.write_text(found.to_toml())
    read = read_profile(path, Link, load_catalogue().sources())
    assert read.gloo_bytes_per_second == found.link.gloo_bytes_per_second
    assert read.gloo_step_seconds == found.link.gloo_step_seconds


def test_the_command_shows_that_there_was_nothing_before(tmp_path: Path) -> None:
    table = written(rows(), tmp_path)
    line = ["calibrate", "--collectives", str(table), "--link", "ethernet-1g", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "zeroplan", *line], capture_output=True, text=True, check=True
    )
    constants = json.loads(done.stdout)["constants"]
    assert len(constants) == 2 * len(RATES)
    assert {each["before"] for each in constants} == {None}


def test_too_few_points_of_one_collective_are_told(tmp_path: Path) -> None:
    few = [each for each in rows() if each["collective"] == "all_gather"][:3]
    with pytest.raises(SpecError, match="3 of 4 points needed: all_gather by gloo"):
        calibrate_collectives(written(few, tmp_path), "ethernet-1g")


def test_an_unknown_library_is_skipped_with_a_reason(tmp_path: Path) -> None:
    lines = [row(backend="mpi", collective="all_gather", message_bytes=2**20, time_us=5)]
    found, skipped = measured_collectives(written(lines, tmp_path), load_catalogue())
    assert found == []
    assert "backend 'mpi' is not modelled" in skipped[0].why


def test_a_table_may_name_a_link_by_its_profile(tmp_path: Path) -> None:
    lines = [
        row(inter_link=name, collective="all_gather", message_bytes=2**20, time_us=5)
        for name in ("ethernet-1g", "ethernet-25g")
    ]
    lines.append({**lines[0], "fabric": "loopback", "n_nodes": 1, "inter_link": ""})
    found, _ = measured_collectives(written(lines, tmp_path), load_catalogue())
    assert [each.outer.id for each in found] == ["ethernet-1g", "ethernet-25g", "loopback"]
