"""`validate --backend cpu`: a real job of local processes, what it shows and how it ends."""

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import MissingPartError, RunError
from zeroplan.validate import read_record, validate

pytestmark = pytest.mark.torch

SMALL: dict[str, Any] = {"sequence_length": 64, "gpus": 2, "activation_checkpointing": "none"}
TOLERANCE = 0.001
STARTS_WITHIN_SECONDS = 300.0
ENDS_WITHIN_SECONDS = 60.0
"""Of a busy machine."""

FAST: dict[str, tuple[str, dict[str, Any]]] = {
    "fsdp2": ("llama", {"strategy": "fsdp2"}),
    "ddp": ("llama", {"strategy": "ddp"}),
}
SLOW: dict[str, tuple[str, dict[str, Any]]] = {
    "hsdp": ("llama", {"strategy": "hsdp", "gpus": 4, "shard_size": 2}),
    "torch-zero1": ("llama", {"strategy": "torch-zero1", "precision": "fp32"}),
    "fsdp1": ("llama", {"strategy": "fsdp1"}),
    "three ranks, checkpointed": (
        "llama",
        {"strategy": "fsdp2", "gpus": 3, "gpus_per_node": 3, "activation_checkpointing": "full"},
    ),
    "accumulation": ("llama", {"strategy": "fsdp2", "gradient_accumulation_steps": 2}),
    "gpt2": ("gpt2", {"strategy": "fsdp2"}),
    "gpt2 ddp": ("gpt2", {"strategy": "ddp", "precision": "fp32"}),
    "qwen2": ("qwen2", {"strategy": "fsdp2"}),
    "qwen3": ("qwen3", {"strategy": "hsdp", "gpus": 4, "shard_size": 2}),
    "mistral": ("mistral", {"strategy": "torch-zero1", "precision": "fp32"}),
    "phi3": ("phi3", {"strategy": "ddp"}),
}


def hold(model: str, keys: dict[str, Any]) -> None:
    answer = validate(model=model, backend="cpu", timeout=300, **{**SMALL, **keys})
    off = [each for each in answer.differences if each.judged and not each.within(TOLERANCE)]
    assert off == []
    assert answer.truth is not None
    assert len(answer.truth.step_seconds) == 5
    assert min(answer.truth.step_seconds) > 0


@pytest.mark.parametrize(("model", "keys"), FAST.values(), ids=FAST)
def test_processes_show_what_was_predicted(
    model_file: Callable[[str], str], model: str, keys: dict[str, Any]
) -> None:
    hold(model_file(model), keys)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "keys"), SLOW.values(), ids=SLOW)
def test_further_processes_show_what_was_predicted(
    model_file: Callable[[str], str], model: str, keys: dict[str, Any]
) -> None:
    hold(model_file(model), keys)


@contextmanager
def command(model: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start `zeroplan validate --backend cpu` in a process group of its own."""
    line = ["validate", "--model", model, "--gpus", "2", "--strategy", "ddp", "--backend", "cpu"]
    with heeding_interrupts():
        started = subprocess.Popen(
            [sys.executable, "-m", "zeroplan", *line, "--sequence-length", "64", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Let what is started be interrupted where the shell of a background job had that ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
def test_a_rank_that_is_killed_ends_the_job_with_a_clear_line(llama: str, tmp_path: Path) -> None:
    """What is recorded then is how it ended."""
    with command(llama, "--record", str(tmp_path / "run.json")) as started:
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


@linux
def test_a_rank_that_hangs_ends_the_job_in_time(llama: str) -> None:
    """Stopped, it neither computes nor dies: the other one waits in a collective."""
    with command(llama, "--timeout", "60") as started:
        found = wait_for_ranks(started)
        os.kill(found[1], signal.SIGSTOP)
        _, err = started.communicate(timeout=60 + ENDS_WITHIN_SECONDS)
        assert started.returncode == 1
        assert "did not finish within 60 s" in err
        assert gone(found)


@linux
def test_an_interrupted_parent_leaves_neither_rank_nor_file_behind(
    llama: str, tmp_path: Path
) -> None:
    record = tmp_path / "records" / "run.json"
    with command(llama, "--record", str(record)) as started:
        found = wait_for_ranks(started)
        os.kill(started.pid, signal.SIGINT)
        started.communicate(timeout=ENDS_WITHIN_SECONDS)
        assert started.returncode == 130
        assert gone(found)
    assert not record.parent.exists()


@linux
def test_a_killed_parent_leaves_no_rank_behind(llama: str) -> None:
    with command(llama) as started:
        found = wait_for_ranks(started)
        os.kill(started.pid, signal.SIGKILL)
        assert gone(found)


@linux
def test_a_job_that_takes_too_long_is_ended(llama: str) -> None:
    with command(llama, "--timeout", "1") as started:
        _, err = started.communicate(timeout=ENDS_WITHIN_SECONDS)
        assert started.returncode == 1
        assert "did not finish within 1 s" in err
        assert "Traceback" not in err


def test_what_only_fake_tensors_can_do_is_refused(llama: str) -> None:
    with pytest.raises(MissingPartError, match="by processes of this machine"):
        validate(model=llama, backend="cpu", gpus=64, strategy="fsdp2", sequence_length=64)
    with pytest.raises(MissingPartError, match="or --backend fake"):
        validate(model="llama-3.1-70b", backend="cpu", gpus=8, strategy="fsdp2")


def launched(model: str, rank: int, port: int, *arguments: str) -> subprocess.Popen[str]:
    """Start `zeroplan validate` as one of two ranks of a launcher."""
    line = ["validate", "--model", model, "--strategy", "ddp", "--backend", "cpu"]
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "zeroplan", *line, "--sequence-length", "64", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )


@linux
def test_ranks_of_a_launcher_join_and_the_first_one_answers(llama: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    both = [launched(llama, i, port, "--record", str(file)) for i, file in enumerate(files)]
    told = [each.communicate(timeout=300) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert "on 2 processes over gloo" in told[0][0]
    assert told[1] == ("", "")
    assert read_record(files[0]).inputs.cluster.gpus == 2
    assert not files[1].exists()


@linux
def test_a_port_in_use_is_told(llama: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with launched(llama, 0, taken.getsockname()[1], "--timeout", "20") as started:
            out, err = started.communicate(timeout=60 + ENDS_WITHIN_SECONDS)
    assert (started.returncode, out) == (1, "")
    assert "rank 0 of 2 found no one at 127.0.0.1" in err
    assert "Traceback" not in err


@linux
def test_a_rank_that_no_other_joins_gives_up_in_time(llama: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with launched(llama, 1, port, "--timeout", "5") as started:
        out, err = started.communicate(timeout=60 + ENDS_WITHIN_SECONDS)
    assert (started.returncode, out) == (1, "")
    assert "Traceback" not in err


def test_a_machine_without_a_folder_for_ranks_is_told(
    llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    with pytest.raises(RunError, match="No space left on device; TMPDIR names another"):
        validate(model=llama, backend="cpu", strategy="ddp", **SMALL)
