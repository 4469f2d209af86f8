"""How a job of local processes ends before its time: none of them is left, and why is told."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from zeroplan.validate import read_record

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

STARTS_WITHIN_SECONDS = 300.0
ENDS_WITHIN_SECONDS = 60.0
"""Of a busy machine."""
HANGS_SECONDS = 20
"""Enough for the rank that is not stopped to come to a collective."""


Validation = Callable[..., AbstractContextManager[subprocess.Popen[str]]]


@pytest.fixture
def validation(in_own_group: Validation, llama: str) -> Validation:
    """Return what starts `zeroplan validate --backend cpu` on two ranks."""
    line = ("validate", "--model", llama, "--gpus", "2", "--strategy", "ddp", "--backend", "cpu")
    return partial(in_own_group, *line, "--sequence-length", "64")


def ranks(parent: int) -> list[int]:
    """Return the children that run Python's spawned main, in the order of their start."""
    found = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            words = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"spawn_main" in words:
                found.append(child)
    return sorted(found)


def wait_for_ranks(started: subprocess.Popen[str]) -> list[int]:
    end = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < end and started.poll() is None:
        if len(found := ranks(started.pid)) == 2:
            return found
        time.sleep(0.1)
    raise AssertionError(started.communicate())


def gone(processes: list[int]) -> bool:
    end = time.monotonic() + ENDS_WITHIN_SECONDS
    while any(Path(f"/proc/{each}").exists() for each in processes):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def test_a_rank_that_is_killed_ends_the_job_with_a_clear_line(
    validation: Validation, tmp_path: Path
) -> None:
    """What is recorded then is how it ended."""
    with validation("--record", str(tmp_path / "run.json")) as started:
        found = wait_for_ranks(started)
        os.kill(found[1], signal.SIGKILL)
        out, err = started.communicate(timeout=ENDS_WITHIN_SECONDS)
        assert (started.returncode, out) == (1, "")
        assert "rank 1 of 2 died (SIGKILL)" in err
        assert "Traceback" not in err
        assert gone(found)
    record = read_record(tmp_path / "run.json")
    assert (record.outcome.kind, record.measured) == ("failed", None)
    assert "rank 1 of 2 died" in record.outcome.reason


def test_a_rank_that_hangs_ends_the_job_in_time(validation: Validation) -> None:
    """Stopped, it neither computes nor dies: the other one waits in a collective."""
    with validation("--timeout", str(HANGS_SECONDS)) as started:
        found = wait_for_ranks(started)
        os.kill(found[1], signal.SIGSTOP)
        _, err = started.communicate(timeout=HANGS_SECONDS + ENDS_WITHIN_SECONDS)
        assert started.returncode == 1
        assert f"did not finish within {HANGS_SECONDS} s" in err
        assert gone(found)


def test_an_interrupted_parent_leaves_neither_rank_nor_file_behind(
    validation: Validation, tmp_path: Path
) -> None:
    record = tmp_path / "records" / "run.json"
    with validation("--record", str(record)) as started:
        found = wait_for_ranks(started)
        os.kill(started.pid, signal.SIGINT)
        started.communicate(timeout=ENDS_WITHIN_SECONDS)
        assert started.returncode == 130
        assert gone(found)
    assert not record.parent.exists()


def test_a_killed_parent_leaves_no_rank_behind(validation: Validation) -> None:
    with validation() as started:
        found = wait_for_ranks(started)
        os.kill(started.pid, signal.SIGKILL)
        assert gone(found)


def test_a_job_that_takes_too_long_is_ended(validation: Validation) -> None:
    with validation("--timeout", "1") as started:
        _, err = started.communicate(timeout=ENDS_WITHIN_SECONDS)
        assert started.returncode == 1
        assert "did not finish within 1 s" in err
        assert "Traceback" not in err
