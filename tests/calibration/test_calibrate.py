"""A link's constants come back from what they made, and a table that cannot tell is refused."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zeroplan.backtesting.collectives import measured_collectives
from zeroplan.calibration import Calibration, Choice, calibrate_collectives
from zeroplan.calibration.fit import value_of
from zeroplan.comm.collectives import collective_seconds
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.profile import Link
from zeroplan.hardware.read import read_profile

SWEEPS = Path(__file__).parents[1] / "comm" / "sweeps.csv"
CATALOGUE = load_catalogue()
MIB = 2**20
SIZES = [2**k for k in range(12, 34, 2)]


def row(**changes: object) -> dict[str, object]:
    base = {
        "id": "r",
        "source": "lab@1:a.log",
        "fabric": "infiniband",
        "collective": "all_gather",
        "gpu": "a100-sxm4-80gb",
        "n_gpus": 16,
        "gpus_per_node": 8,
        "n_nodes": 2,
        "intra_link": "NVLink3",
        "inter_link": "8x200 HDR",
        "message_bytes": 2**20,
        "in_place": "yes",
        "time_us": 1.0,
    }
    return base | changes


def sweep(source: str, nodes: int, **changes: object) -> list[dict[str, object]]:
    size = {"n_nodes": nodes, "n_gpus": 8 * nodes}
    return [row(source=source, message_bytes=each, **size, **changes) for each in SIZES]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**each, "id": f"r{number}"} for number, each in enumerate(rows))
    return path


def timed(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows whose times are what the shipped profiles say."""
    measured, skipped = measured_collectives(write(path, rows), CATALOGUE)
    assert not skipped
    for cells, each in zip(rows, measured, strict=True):
        cells["time_us"] = 1e6 * collective_seconds(each.call, each.wires, in_place=each.in_place)
    return write(path, rows)


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    rows = [*sweep("lab@1:a.log", 2), *sweep("lab@1:b.log", 4), *sweep("other@1:c.log", 8)]
    rows += sweep("other@1:d.log", 16) + sweep("third@1:e.log", 2, collective="all_reduce")
    table = timed(tmp_path_factory.mktemp("lab") / "table.csv", rows)
    return calibrate_collectives(table, "ib-hdr200", name="ours")


@pytest.fixture(scope="module")
def published() -> Calibration:
    return calibrate_collectives(SWEEPS, "nvlink4", name="ours")


def test_constants_come_back_from_times_that_they_made(recovered: Calibration) -> None:
    assert recovered.errors[-1].median < 0.02
    truth = CATALOGUE.link("ib-hdr200")
    told = {each.field: value_of(recovered.link, each) for each in recovered.constants}
    for key in ("bandwidth_efficiency", "latency_seconds"):
        assert told[key] == pytest.approx(getattr(truth, key).value, rel=0.05)


def test_every_source_that_can_be_is_held_out(recovered: Calibration) -> None:
    """The third alone has all-reduces, which tell of trees."""
    assert recovered.held_out.sources == ("lab", "other")
    assert not recovered.held_out.by_file
    assert recovered.held_out.missing == ("third@1:e.log",)
    assert max(each.median for each in recovered.held_out.errors) < 0.15


@pytest.mark.published
def test_a_few_dozen_published_rows_give_the_shipped_constants(published: Calibration) -> None:
    """The shipped ones come from 638 rows by the command that the profile records."""
    shipped = CATALOGUE.link("nvlink4")
    for key in ("bandwidth_efficiency", "switch_efficiency"):
        assert getattr(published.link, key).value == pytest.approx(
            getattr(shipped, key).value, rel=0.06
        )


def test_the_file_reads_back_to_the_profile(published: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(published.to_toml(), encoding="utf-8")
    assert read_profile(path, Link, CATALOGUE.sources()) == published.link


def test_a_profile_says_how_it_came_about(published: Calibration) -> None:
    fit = published.link.fit
    assert fit is not None
    assert fit.command == "zeroplan calibrate --collectives sweeps.csv --link nvlink4"
    assert fit.sources == ("ai-dynamo/aiconfigurator", "aws-samples/awsome-distributed-training")
    assert (fit.fewest_ranks, fit.most_ranks) == (2, 8)
    assert (fit.smallest_bytes, fit.largest_bytes) == (2**16, 2**30)
    assert published.link.bandwidth_efficiency.kind == "fitted"
    errors = (*published.errors, *published.held_out.errors)
    worst = max(e.band for e in errors if (e.size_class, e.collective) == ("large", "all"))
    band = published.link.bandwidth_efficiency.rel_uncertainty
    assert band == pytest.approx(worst, abs=0.01)


def test_collectives_that_were_not_asked_for_are_predicted(tmp_path: Path) -> None:
    rows = [*sweep("lab@1:a.log", 2), *sweep("lab@1:b.log", 4, collective="all_reduce")]
    timed(tmp_path / "t.csv", rows)
    for each in rows[len(SIZES) :]:
        each["time_us"] = 3 * float(each["time_us"])  # type: ignore[arg-type]
    choice = Choice(collectives=("all_gather",))
    found = calibrate_collectives(write(tmp_path / "t.csv", rows), "ib-hdr200", choice=choice)
    assert found.held_out.collectives == ("all_reduce",)
    assert found.link.bandwidth_efficiency.rel_uncertainty == pytest.approx(2, abs=0.3)
    assert found.link.fit is not None
    assert found.link.fit.held_out.endswith("every all_reduce")


def test_gpus_can_be_chosen(tmp_path: Path) -> None:
    rows = [*sweep("lab@1:a.log", 2), *sweep("lab@1:b.log", 16, gpu="a100-sxm4-40gb")]
    choice = Choice(gpus=("a100-sxm4-80gb",))
    found = calibrate_collectives(timed(tmp_path / "t.csv", rows), "ib-hdr200", choice=choice)
    assert found.link.fit is not None
    assert found.link.fit.most_ranks == 16
    assert found.link.fit.command.endswith("--gpus a100-sxm4-80gb")


def test_what_the_points_cannot_tell_stays(tmp_path: Path) -> None:
    rows = [each for each in sweep("lab@1:a.log", 2) if each["message_bytes"] > 2**24]  # type: ignore[operator]
    found = calibrate_collectives(timed(tmp_path / "table.csv", rows), "ib-hdr200")
    assert {each.field for each in found.constants} <= {"bandwidth_efficiency", "base_seconds"}
    assert found.kept["latency_seconds"] == "1 of 2 numbers of nodes needed to tell steps apart"
    assert found.kept["small_message_base_seconds"].startswith("0 of 4 points needed: small")
    assert found.link.latency_seconds == CATALOGUE.link("ib-hdr200").latency_seconds
    assert found.held_out.missing == ("lab@1:a.log",)


def test_a_choice_narrows_the_points_and_the_constants(tmp_path: Path) -> None:
    rows = [*sweep("lab@1:a.log", 2), *sweep("lab@1:b.log", 4, collective="reduce_scatter")]
    choice = Choice(constants=("bandwidth_efficiency",), collectives=("all_gather",), min_bytes=MIB)
    found = calibrate_collectives(timed(tmp_path / "t.csv", rows), "ib-hdr200", choice=choice)
    assert [each.key for each in found.constants] == ["bandwidth_efficiency"]
    assert found.link.fit is not None
    assert found.link.fit.most_ranks == 16
    assert found.link.fit.smallest_bytes == MIB
    assert found.link.fit.command.endswith(
        "--constants bandwidth_efficiency --only all_gather --min-bytes 1048576"
    )


@pytest.mark.parametrize(
    ("link", "rows", "why"),
    [
        ("ib-hdr200", sweep("lab", 2)[:4], "its bandwidth cannot be told: 0 of 4 points needed"),
        ("roce-400", sweep("lab", 2), "no such row ran on 'roce-400'; it has ib-hdr200"),
        ("ib-hdr", sweep("lab", 2), "link 'ib-hdr' is not known"),
    ],
)
def test_too_little_is_refused(
    tmp_path: Path, link: str, rows: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(SpecError, match=why):
        calibrate_collectives(write(tmp_path / "table.csv", rows), link)


def test_points_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    rows = [*sweep("lab", 2), *sweep("lab", 4)]
    timed(tmp_path / "table.csv", rows)
    for each in rows[: len(SIZES)]:
        each["time_us"] = 9 * float(each["time_us"])  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="the points contradict each other"):
        calibrate_collectives(write(tmp_path / "table.csv", rows), "ib-hdr200")


def test_an_unknown_constant_is_refused() -> None:
    with pytest.raises(SpecError, match=r"constant 'latency' is none of nvlink4's"):
        calibrate_collectives(SWEEPS, "nvlink4", choice=Choice(constants=("latency",)))


QUICK = ("--link", "nvlink4", "--constants", "bandwidth_efficiency")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "zeroplan", "calibrate", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_command_writes_a_new_file_and_no_other(tmp_path: Path, published: Calibration) -> None:
    """In another process the same table gives the same profile."""
    target = tmp_path / "ours.toml"
    asked = ("--collectives", str(SWEEPS), "--link", "nvlink4", "--output", str(target))
    done = command(*asked, "--json")
    assert (done.returncode, done.stderr) == (0, f"wrote {target}\n")
    document = json.loads(done.stdout)
    assert document["link"] == "ours"
    assert {"constants", "kept", "errors", "held_out", "fit"} <= set(document)
    assert [path.name for path in tmp_path.iterdir()] == ["ours.toml"]
    assert target.read_text() == published.to_toml()
    again = command(*asked)
    assert again.returncode == 2
    assert "there is such a file; name a new one" in again.stderr
    assert target.read_text() == published.to_toml()


def test_points_are_counted_and_the_folder_of_a_profile_is_made(tmp_path: Path) -> None:
    target = tmp_path / "own" / "links" / "ours.toml"
    done = command(*QUICK, "--collectives", str(SWEEPS), "--output", str(target))
    assert (done.returncode, done.stderr) == (
        0,
        f"made the folder {target.parent}\nwrote {target}\n",
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("all ")]
    assert rows
    assert all(row[2].isdecimal() for row in rows)


def test_rows_that_cannot_be_read_are_counted_by_their_reason(tmp_path: Path) -> None:
    rows = [*csv.DictReader(SWEEPS.read_text().splitlines())]
    unread = [{**rows[0], "collective": "alltoallw"}] * 3 + [{**rows[0], "time_us": ""}]
    table = write(tmp_path / "table.csv", [*rows, *unread])
    done = command(*QUICK, "--collectives", str(table))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    told = lines.index("Skipped rows: 4")
    assert lines[told + 1].startswith("- 3: ")
    assert "alltoallw" in lines[told + 1]
    assert "time_us" in lines[told + 2]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--link", "nvlink4"), 2, "name what was measured"),
        (("--collectives", str(SWEEPS)), 2, "name the link that the collectives ran on"),
        (("--collectives", str(SWEEPS), "--link", "nvlink4", "--min-bytes", "1M"), 2, "'1M'"),
        (("--collectives", "no.csv", "--link", "nvlink4"), 3, "no.csv: No such file"),
        (("--collectives", str(SWEEPS), "--link", "efa-v2"), 3, "no such row ran on 'efa-v2'"),
    ],
)
def test_a_command_that_cannot_be_answered_says_why(
    arguments: tuple[str, ...], code: int, why: str
) -> None:
    done = command(*arguments)
    assert done.returncode == code
    assert why in done.stderr
    assert "Traceback" not in done.stderr
