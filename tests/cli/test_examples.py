"""What the help page shows as an example runs as it stands."""

import shlex
import subprocess
import sys

import pytest

from zeroplan.cli.estimate import EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str) -> None:
    program, *arguments = shlex.split(example)
    assert program == "zeroplan"
    command = [sys.executable, "-c", "from zeroplan.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_shown_spec_gives_the_same_estimates_down_a_pipe() -> None:
    program = [sys.executable, "-c", "from zeroplan.cli import main; main()", "estimate"]
    asked = ["-m", "llama-3.1-8b", "-n", "16", "--link", "ib"]

    def stdout(*arguments: str, stdin: str = "") -> str:
        command = [*program, *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True
        ).stdout

    spec = stdout(*asked, "--show-spec")
    assert stdout("--spec", "-", "--json", stdin=spec) == stdout(*asked, "--json")
    assert stdout("--spec", "-", "--show-spec", stdin=spec) == spec
