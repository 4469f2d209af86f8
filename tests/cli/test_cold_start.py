"""The command line starts fast because it loads nothing that it does not need."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = {"matplotlib", "numpy", "pandas", "pydantic", "torch"}

ESTIMATE = """
import sys
from zeroplan.cli import main
sys.argv[1:] = ["estimate", "--model", "70b", "--gpus", "64", "--link", "ib"]
"""


def _python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "code",
    ["import zeroplan", "import zeroplan; zeroplan.estimate", f"{ESTIMATE}\ntry: main()\nexcept SystemExit: pass"],
    ids=["import", "library", "command"],
)  # fmt: skip
def test_nothing_heavy_is_loaded(code: str) -> None:
    loaded = _python(f"{code}\nimport sys; print('|', *sys.modules)").rpartition("|")[2]
    assert not HEAVY & set(loaded.split())


def test_importing_says_nothing() -> None:
    assert _python("import zeroplan") == ""


def test_a_cold_estimate_takes_at_most_twice_what_its_frameworks_take_to_load(
    tmp_path: Path,
) -> None:
    """The best of several, so that a busy machine does not decide; byte code is at hand."""
    estimate = f"{ESTIMATE}\ntry: main()\nexcept SystemExit: pass"
    cached = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    cached.pop("PYTHONDONTWRITEBYTECODE", None)
    best = {
        code: min(_seconds(code, cached) for _ in range(8))
        for code in ("import typer, pydantic", estimate)
    }
    assert best[estimate] <= 2 * best["import typer, pydantic"]


def _seconds(code: str, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - start


def test_the_public_names_are_there_and_stay_callable() -> None:
    _python(
        "import zeroplan, zeroplan.estimation, zeroplan.estimation.record\n"
        "assert callable(zeroplan.estimate)\n"
        "from zeroplan import *\n"
        "assert set(zeroplan.__all__) <= set(dir())\n"
        "assert dir(zeroplan) == zeroplan.__all__"
    )
