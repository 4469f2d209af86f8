"""Ranks that a launcher started meet and run one job, or say why they cannot."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from zeroplan.validate import read_record

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its loopback is lo"),
]

ENDS_WITHIN_SECONDS = 120.0
"""Of a busy machine."""


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


def test_a_port_in_use_is_told(llama: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with launched(llama, 0, taken.getsockname()[1], "--timeout", "20") as started:
            out, err = started.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert (started.returncode, out) == (1, "")
    assert "rank 0 of 2 found no one at 127.0.0.1" in err
    assert "Traceback" not in err


def test_a_rank_that_no_other_joins_gives_up_in_time(llama: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with launched(llama, 1, port, "--timeout", "5") as started:
        out, err = started.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert (started.returncode, out) == (1, "")
    assert "Traceback" not in err
