"""The exit code says how it went, and standard output is empty unless there is an answer."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

BROKEN = """
import sys
from zeroplan import cli, errors, estimation
def fail(*_, **__):
    raise {}
estimation.estimate = fail
sys.argv[1:] = ["estimate", "--model", "8b"]
cli.main()
"""


def _zeroplan(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from zeroplan.cli import main; main()", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def _failing(error: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BROKEN.format(error)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_answer_exits_with_0() -> None:
    done = _zeroplan("estimate", "-m", "llama-3.1-8b", "-n", "8", "--strategy", "fsdp2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["strategy"] for each in json.loads(done.stdout)["estimates"]] == ["fsdp2"]


def test_a_bug_exits_with_1_a_traceback_and_a_request() -> None:
    done = _failing("RuntimeError('boom')")
    assert (done.returncode, done.stdout) == (1, "")
    assert "please report" in done.stderr
    assert "Traceback" in done.stderr
    assert "boom" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "--gpus", "8"],
        ["estimate", "--model", "8b", "--widht"],
        ["guess"],
        ["inspect"],
        ["inspect", "--json"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    done = _zeroplan(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("zeroplan: ")
    assert len(done.stderr.splitlines()) <= 2
    assert done.stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "plan -m 8b --wide",
            "--wide belongs to `zeroplan estimate` and `zeroplan explain`. `zeroplan plan --help`",
        ),
        ("estimate -m 8b --why-slow", "--why-slow belongs to `zeroplan explain`."),
        ("inspect 8b -n 8", "-n belongs to `zeroplan estimate`, .* and others"),
        ("hardware list --gpus 8", "--gpus belongs to `zeroplan estimate`"),
        ("estimate -m 8b --version", "--version belongs to `zeroplan`."),
        ("estimate -m 8b --widht", r"No such option: --widht \(Possible options: --wide\)"),
    ],
)
def test_an_option_of_another_command_names_that(line: str, told: str) -> None:
    done = _zeroplan(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(f"zeroplan: {told}", done.stderr), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "--model", "8b", "--gpus", "0"],
        ["estimate", "--model", "no-such-model"],
        ["estimate", "--spec", "/no/such/spec.toml"],
        ["estimate", "--spec", "-"],
        ["inspect", "no-such-model"],
    ],
    ids=" ".join,
)
def test_a_wrong_spec_exits_with_3_and_at_most_two_lines(arguments: list[str]) -> None:
    done = _zeroplan(*arguments, stdin="[model]\nsource = 3")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("zeroplan: ")
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_where_nothing_fits_the_answer_still_comes_and_exits_with_4(form: list[str]) -> None:
    done = _zeroplan("estimate", "-m", "llama-3.1-70b", "--strategy", "ddp", *form)
    assert (done.returncode, done.stderr) == (4, "")
    assert "ddp" in done.stdout


def test_a_missing_part_exits_with_6() -> None:
    done = _failing("errors.MissingPartError('torch is missing')")
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr == "zeroplan: torch is missing\n"


def test_an_interrupt_exits_with_130() -> None:
    # a child of a background shell ignores the signal unless it is told not to
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", f"{code}from zeroplan.cli import main; main()"]
    with subprocess.Popen(
        [*command, "estimate", "--spec", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        time.sleep(1.0)  # it waits for standard input by then
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, b"")


def test_an_interrupt_of_the_imports_is_as_quiet() -> None:
    # the finder stands for Ctrl-C while the first module is imported
    code = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "zeroplan.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from zeroplan.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", ["estimate -m 8b", "plan --help", "hardware list", "--version"])
def test_standard_output_that_is_full_is_told_in_a_line(line: str) -> None:
    command = [sys.executable, "-m", "zeroplan", *line.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "zeroplan: standard output: No space left on device: send it elsewhere.\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.skipif(sys.platform == "win32", reason="closes a descriptor in the child")
def test_standard_output_that_is_closed_is_told_in_a_line() -> None:
    command = ["sh", "-c", f"{shlex.quote(sys.executable)} -m zeroplan estimate -m 8b >&-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("zeroplan: standard output is closed: ")


@pytest.mark.parametrize("line", ["estimate -m 8b", "plan --help"])
def test_a_reader_that_goes_away_is_no_news(line: str) -> None:
    command = [sys.executable, "-m", "zeroplan", *line.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_debug_shows_the_traceback_of_a_mendable_error() -> None:
    done = _zeroplan("estimate", "--model", "8b", "--gpus", "0", "--debug")
    assert "Traceback" in done.stderr
    assert "SpecError" in done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["estimate"], ["hardware"]], ids=["alone", "estimate", "hardware"]
)
def test_a_command_alone_shows_its_help(arguments: list[str]) -> None:
    done = _zeroplan(*arguments)
    assert done.returncode == 0
    assert "Usage: zeroplan" in done.stdout


def test_version_is_said() -> None:
    done = _zeroplan("--version")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"zeroplan {version('zeroplan')}")
