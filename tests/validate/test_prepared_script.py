"""The prepared GPU script runs through where there is no GPU: the same list on tiny shapes."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from zeroplan.spec.toml import load_spec
from zeroplan.validate import read_record

pytestmark = pytest.mark.torch

HOME = Path(__file__).parents[2]
SCRIPT = HOME / "benchmarks" / "cuda_validation.py"
SOME = ("1b-fsdp2-8-none", "8b-fsdp2-512-selective-fused")


def script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_dry_run_leaves_a_record_of_every_run(tmp_path: Path) -> None:
    done = script(tmp_path, "--dry-run", "--only", *SOME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for name in SOME:
        record = read_record(tmp_path / f"{name}.json")
        assert (record.outcome.kind, record.pretended) == ("ok", True)
        assert name in done.stdout
    benches = json.loads((tmp_path / f"{SOME[0]}.json").read_text())["measured"]["micro_benches"]
    assert benches["products"]
    assert benches["copies"]
    assert list(tmp_path.glob("*.part")) == []


def test_a_budget_that_is_spent_leaves_the_rest_out_and_says_so(tmp_path: Path) -> None:
    done = script(tmp_path, "--dry-run", "--budget", "0")
    lines = [line for line in done.stdout.splitlines() if "skipped: 0 s left" in line]
    assert len(lines) >= 8
    assert list(tmp_path.glob("*.json")) == []


def test_every_run_of_the_list_is_one_that_can_be_asked() -> None:
    """Both sizes, three ways to checkpoint, 8 to 512 ranks, two optimizers, kept or not, DDP."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        cases = import_module("cuda_validation").CASES
    finally:
        sys.path.remove(str(SCRIPT.parent))
    runs = [load_spec(gpus=case.gpus, **case.keys) for case in cases]
    assert len({case.name for case in cases}) == len(cases) >= 8
    assert {run.cluster.gpus for run in runs} == {8, 64, 512}
    assert {run.training.activation_checkpointing for run in runs} == {"none", "full", "selective"}
    assert {run.training.optimizer_implementation for run in runs} >= {None, "fused"}
    assert {run.sharding.strategy for run in runs} == {"fsdp2", "hsdp", "ddp"}
    assert {run.sharding.reshard_after_forward for run in runs} == {True, False}
