"""Processes that search end with the one that started them, and say nothing about it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import RunError, SpecError
from zeroplan.search.workers import mapping

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

SPACE = (
    "plan -m 70b -n 8..512 -b 1,2,3,4,6,8,12,16 -s 2048,4096,8192 "
    "--gradient-accumulation-steps 1,2,4,8,16,32,64 --link ib-ndr400,ethernet-25g "
    "--gpu h100-sxm5-80gb,a100-sxm4-80gb,h200-sxm-141gb --workers 2"
)
"""Searched for far longer than a test waits."""

WITHIN_SECONDS = 60.0
"""Of a busy machine."""


def _slower_for_less(task: int) -> int:
    time.sleep(0.05 * (3 - task % 3))
    return task * task


def _refused(task: int) -> int:
    raise SpecError(f"no {task}")


def _killed(task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


Searching = Callable[[], AbstractContextManager[subprocess.Popen[str]]]


@pytest.fixture
def searching(in_own_group: Callable[..., Any]) -> Searching:
    """Return what starts a search with two workers."""
    return partial(in_own_group, *SPACE.split())


def _workers(group: int) -> list[str]:
    """Return the states of the spawned processes of a group, the dead left out."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, of = (each / "stat").read_text().rpartition(") ")[2].split()[:3]
            spawned = "spawn_main" in (each / "cmdline").read_text()
            if int(of) == group and state != "Z" and spawned:
                found.append(state)
    return found


def _wait_until(told: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN_SECONDS
    while not told():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_answers_come_in_the_order_of_the_tasks() -> None:
    with mapping(2) as mapped:
        assert list(mapped(_slower_for_less, range(7))) == [task * task for task in range(7)]


def test_what_a_task_raises_is_raised_where_its_answer_is_wanted() -> None:
    with mapping(2) as mapped, pytest.raises(SpecError) as told:
        list(mapped(_refused, [0]))
    assert str(told.value) == "no 0"
    assert "in _refused" in "".join(told.value.__notes__)


@on_linux
def test_a_process_that_was_killed_is_told() -> None:
    with mapping(2) as mapped, pytest.raises(RunError, match="a smaller number of --workers"):
        list(mapped(_killed, range(3)))


@on_linux
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.2, 0.6], ids="after {}".format)
def test_an_interrupt_from_the_first_worker_on_is_quiet(
    searching: Searching, seconds: float
) -> None:
    with searching() as started:
        _wait_until(lambda: bool(_workers(started.pid)))
        time.sleep(seconds)
        os.killpg(started.pid, signal.SIGINT)
        out, told = started.communicate(timeout=WITHIN_SECONDS)
        assert (started.returncode, told) == (130, "")
        assert out.startswith("Interrupted")
        assert _workers(started.pid) == []


@on_linux
@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.1], ids="after {}".format)
def test_a_second_interrupt_ends_at_once(searching: Searching, seconds: float) -> None:
    with searching() as started:
        _wait_until(lambda: len(_workers(started.pid)) == 2)
        for _ in range(2):
            with suppress(ProcessLookupError):  # it may have ended
                os.killpg(started.pid, signal.SIGINT)
            time.sleep(seconds)
        _, told = started.communicate(timeout=WITHIN_SECONDS)
        assert told == ""
        assert started.returncode in (130, -signal.SIGINT)
        assert _workers(started.pid) == []


@on_linux
def test_no_worker_outlives_a_search_that_was_killed(searching: Searching) -> None:
    with searching() as started:
        _wait_until(lambda: len(_workers(started.pid)) == 2)
        time.sleep(0.5)
        started.kill()
        _, told = started.communicate(timeout=WITHIN_SECONDS)
        _wait_until(lambda: not _workers(started.pid))
        assert told == ""
