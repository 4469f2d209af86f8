"""`zeroplan plot` and `zeroplan trace`: files whole or not at all, words on standard error."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from zeroplan import estimate

QUESTION = ("-m", "llama-3.1-8b", "-n", "8", "--strategy", "fsdp2")
SWEEPS = Path(__file__).parents[1] / "comm" / "sweeps.csv"


def _zeroplan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from zeroplan.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_chart_comes_with_its_numbers_and_its_words(tmp_path: Path) -> None:
    done = _zeroplan(tmp_path, "plot", "memory", *QUESTION)
    assert (done.returncode, done.stdout) == (0, "")
    assert "wrote memory.svg\nfsdp2 fits in " in done.stderr
    assert "Stacked bars of memory per GPU, llama-3.1-8b" in done.stderr
    with (tmp_path / "memory.csv").open() as file:
        (row,) = csv.DictReader(file)
    (found,) = estimate(model="llama-3.1-8b", gpus=8, strategy="fsdp2").estimates
    assert int(row["device_bytes"]) == found.memory.device_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.csv", "memory.svg"]


@pytest.mark.parametrize(
    ("name", "begins"), [("deep/x.png", b"\x89PNG"), ("x.pdf", b"%PDF"), ("x.svg", b"<?xml")]
)
def test_the_suffix_says_which_file(name: str, begins: bytes, tmp_path: Path) -> None:
    done = _zeroplan(tmp_path, "plot", "timeline", *QUESTION, "-o", name)
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert (tmp_path / name).with_suffix(".csv").exists()


def test_measured_collectives_need_no_model(tmp_path: Path) -> None:
    done = _zeroplan(tmp_path, "plot", "collective", "--measured", str(SWEEPS))
    assert done.returncode == 0, done.stderr
    assert "measured calls on nvlink4 are within" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["memry", *QUESTION], 2, "Perhaps you meant 'memory'?"),
        (["memory"], 2, "no model"),
        (["memory", *QUESTION, "-o", "x.jpg"], 2, "ends in one of .png, .svg, .pdf."),
        (["memory", *QUESTION, "-o", "taken/x.svg"], 2, "--output taken/x.svg: "),
        (["links", *QUESTION], 3, "--gpus = 8: one node"),
        (["fit", *QUESTION, "--link", "ib,efa"], 2, "--link has several values: plot fit takes"),
        (["timeline", "-m", "nobody/knows", "-n", "8"], 3, "nobody/knows"),
        (["parity"], 2, "--measured"),
        (["collective", "-n", "1"], 3, "--gpus = 1"),
        (["collective", "--measured", "none.csv"], 3, "none.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_one_line_and_leaves_no_file(
    arguments: list[str], code: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    done = _zeroplan(tmp_path, "plot", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_trace_and_a_snapshot_are_written(tmp_path: Path) -> None:
    done = _zeroplan(tmp_path, "trace", *QUESTION, "--memory-snapshot", "step.pickle")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Predicted by zeroplan, not measured." in done.stderr
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (tmp_path / "step.pickle").stat().st_size > 10_000
