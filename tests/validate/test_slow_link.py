"""Two ranks train across a link that `tc` slows down; what is sent and waited for was predicted.

Bytes are asserted strictly and times loosely: other work on the machine takes its share of them.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zeroplan.calibration.fit import GLOO
from zeroplan.hardware import load_catalogue

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "slow_link.py"
LACKING = 6
"""Its exit code where the machine has no slow links."""
HEADERS_OF_GLOO = 0.01
"""Share by which gloo's own headers, barriers and packets sent again add to the payload. [1]"""
LIMIT_SECONDS = 300
LINE = 300e6 / 8
"""Of 300 Mbit/s. [B/s]"""
SLACK = 1.1
"""By which what is shaped may be faster than its line: a burst."""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lab leaves the profile of its link."""
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def jobs(profiles: Path) -> dict[str, dict[str, Any]]:
    """An FSDP2 and a DDP job at 300 Mbit/s."""
    pytest.importorskip("torch")
    output = profiles / "record.json"
    line = ["--short", "--rates", "300mbit", "--output", str(output), "--profiles", str(profiles)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *line],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode == LACKING:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stderr) == (0, "")
    (run,) = json.loads(output.read_text())["runs"]
    return {each["strategy"]: each for each in run["jobs"]}


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_what_crosses_the_link_was_predicted(
    jobs: dict[str, dict[str, Any]], strategy: str
) -> None:
    """Were a reduce-scatter half an all-reduce, FSDP2 would send 27 % less."""
    job = jobs[strategy]
    ours, seen = (
        {(each["name"], each["phase"]): each for each in job[key]}
        for key in ("predicted_calls", "calls")
    )
    assert ours == seen
    assert job["payload_bytes"] == pytest.approx(job["predicted_bytes"], rel=HEADERS_OF_GLOO)


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_so_does_a_step_take(jobs: dict[str, dict[str, Any]], strategy: str) -> None:
    """No step is shorter than the line takes for what it sends, however busy the machine is."""
    job = jobs[strategy]
    assert 0.5 < job["predicted_seconds"] / job["step_seconds"] < 2
    assert job["payload_bytes"] / LINE < SLACK * job["step_seconds"]


def test_the_link_has_a_profile_of_its_own(jobs: dict[str, dict[str, Any]], profiles: Path) -> None:
    """A rank sends less than the line carries, whatever the collective."""
    assert jobs
    link = load_catalogue(profiles).link("veth-300mbit")
    line = link.bandwidth_bytes_per_second.value
    assert line == LINE
    for field in GLOO:
        assert set(getattr(link, field)) >= {"all_gather", "reduce_scatter", "all_reduce"}
    assert max(each.value for each in link.gloo_bytes_per_second.values()) < SLACK * line


def children(parent: int) -> set[int]:
    found = [task.read_text().split() for task in Path(f"/proc/{parent}/task").glob("*/children")]
    return {int(child) for line in found for child in line}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_lab_that_is_ended_leaves_no_rank_and_no_link(by: signal.Signals) -> None:
    """Two processes hold the namespaces, which go with them; two are ranks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        lab = subprocess.Popen([sys.executable, str(SCRIPT), "--short"], stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        while len(found := children(lab.pid)) < 4:
            if lab.poll() == LACKING:
                pytest.skip(str(lab.communicate()[1], "utf-8").strip())
            assert lab.poll() is None
            time.sleep(0.05)
        lab.send_signal(by)
        lab.communicate(timeout=LIMIT_SECONDS)
        assert lab.returncode != 0
        end = time.monotonic() + LIMIT_SECONDS
        while any(Path(f"/proc/{each}").exists() for each in found) and time.monotonic() < end:
            time.sleep(0.05)
        assert [each for each in found if Path(f"/proc/{each}").exists()] == []
    finally:
        lab.kill()
        lab.communicate()
