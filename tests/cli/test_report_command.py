"""`zeroplan report` from the outside."""

import json
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from zeroplan import estimate, load_spec
from zeroplan.cli.report import EXAMPLES


def _run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from zeroplan.cli import main; main()", *shlex.split(line)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def _blocks(page: str) -> list[str]:
    return [unescape(each) for each in re.findall(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL)]


SMALL = "report --model llama-3.2-1b --gpus 8,16 -b 1,2 -s 2048,4096 --link ib,ethernet-25g"


def test_the_page_is_written_and_the_verdict_is_said(tmp_path: Path) -> None:
    done = _run(tmp_path, f"{SMALL} -o pages/one.html")
    assert (done.returncode, done.stderr) == (0, "made the folder pages\nwrote pages/one.html\n")
    assert done.stdout.startswith("Fits: ")
    again = _run(tmp_path, f"{SMALL} -o pages/one.html")
    assert again.stderr == "wrote pages/one.html\n"
    assert [each.name for each in tmp_path.rglob("*.*")] == ["one.html"]


def test_what_the_page_says_to_run_gives_the_same_answer(tmp_path: Path) -> None:
    _run(tmp_path, f"{SMALL} -o one.html")
    page = (tmp_path / "one.html").read_text()
    commands, spec = _blocks(page)
    one, again = commands.splitlines()
    asked = estimate(model="llama-3.2-1b", gpus=8, link="ib", sequence_length=2048)
    assert (
        _run(tmp_path, one.removeprefix("zeroplan ") + " --json").stdout.strip() == asked.to_json()
    )
    assert _run(tmp_path, again.removeprefix("zeroplan ") + " -o two.html").returncode == 0
    assert (tmp_path / "two.html").read_text() == page
    (tmp_path / "run.toml").write_text(spec)
    assert estimate(load_spec(tmp_path / "run.toml")).estimates == asked.estimates


def test_a_budget_is_told_on_the_page_and_in_the_command(tmp_path: Path) -> None:
    _run(tmp_path, f"{SMALL} --tokens 300B --price 2.5 -o one.html")
    page = (tmp_path / "one.html").read_text()
    assert "<caption>300B tokens</caption>" in page
    assert all("--tokens 300B --price 2.5" in line for line in _blocks(page)[0].splitlines())


def test_a_page_that_says_no_is_still_an_answer(tmp_path: Path) -> None:
    done = _run(tmp_path, "report -m 70b -n 8 --strategy ddp -b 1,2 -s 1024,2048 --json -o no.html")
    assert done.returncode == 4
    assert json.loads(done.stdout)["estimates"][0]["verdict"] == "does_not_fit"
    assert "No: llama-3.1-70b does not fit on these 8 GPUs." in (tmp_path / "no.html").read_text()


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (
            "report -m 8b -o page.pdf",
            2,
            "--output 'page.pdf': a report is HTML; name it page.html.",
        ),
        ("report -m 8b --gpu h100-sxm5-80gb,a100-sxm4-80gb", 2, "--gpu: give it one value"),
        ("report", 0, None),
        ("report -m 8b -n 12", 3, "gpus"),
    ],
)
def test_a_fault_is_told_and_leaves_no_file(
    tmp_path: Path, line: str, code: int, told: str | None
) -> None:
    done = _run(tmp_path, line)
    assert done.returncode == code
    if told is not None:
        assert (done.stdout, done.stderr.count("\n") <= 2) == ("", True)
        assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str, tmp_path: Path) -> None:
    done = _run(tmp_path, example.removeprefix("zeroplan "))
    (page,) = tmp_path.glob("*.html")
    assert (done.returncode, done.stderr) == (0, f"wrote {page.name}\n")
