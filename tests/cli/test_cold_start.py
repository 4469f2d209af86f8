"""The command line starts fast because it loads nothing that it does not need."""

import subprocess
import sys

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


def test_the_public_names_are_there_and_stay_callable() -> None:
    _python(
        "import zeroplan, zeroplan.estimation, zeroplan.estimation.record\n"
        "assert callable(zeroplan.estimate)\n"
        "from zeroplan import *\n"
        "assert set(zeroplan.__all__) <= set(dir())\n"
        "assert dir(zeroplan) == zeroplan.__all__"
    )
