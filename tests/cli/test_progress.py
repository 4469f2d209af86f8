"""Long commands say how far they are: after a second, on a terminal, and nowhere else."""

import io
import re
import sys
from pathlib import Path

import pytest

from zeroplan.cli import app, progress
from zeroplan.cli.progress import ERASE, Line, working
from zeroplan.errors import SpecError

MODEL = "-m llama-3.2-1b -n 8 --strategy fsdp2"
SWEEPS = Path(__file__).parents[1] / "comm" / "sweeps.csv"
RUNS = (
    "id,strategy,gpus,gpu,seq_len,micro_batch_per_gpu,n_layers,hidden,n_heads,n_kv_heads,ffn,vocab,"
    "step_time_s\nmine,fsdp2,8,a100-sxm4-80gb,2048,1,16,2048,32,8,8192,32000,0.5\n"
)
COMMANDS = {
    f"estimate {MODEL}": "estimating, 0 s",
    f"estimate {MODEL} -b 1,2": "estimating: 2 of 2 combinations, ",
    f"plan {MODEL} -b 1": "searching: ",
    f"plan {MODEL} -b 1 --csv plans.csv": "pricing every plan: ",
    f"explain {MODEL}": "explaining, 0 s",
    f"explain {MODEL} --why-slow": "looking for what is slow, 0 s",
    f"explain {MODEL} --make-it-fit": "trying changes, 0 s",
    f"report {MODEL} -b 1 -s 2048": "pricing what the page offers, 0 s",
    f"plot memory {MODEL}": "pricing memory, 0 s",
    f"plot scaling {MODEL}": "drawing, 0 s",
    f"plot pareto {MODEL} -b 1": "pricing pareto: ",
    "plot parity --measured runs.csv": "pricing parity: 1 of 1 rows, ",
    f"trace {MODEL}": "writing the step down, 0 s",
    "backtest runs.csv": "predicting: 1 of 1 rows, ",
    f"backtest --collectives {SWEEPS}": "pricing collectives, 0 s",
    f"calibrate --collectives {SWEEPS} --link nvlink4": "fitting, 0 s",
}
QUIET = tuple(line for line in COMMANDS if line.split(" ", 1)[0] not in ("plot", "trace"))


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs.csv").write_text(RUNS)
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show progress from the start, and see every count, instead of waiting for a second."""

    remember = Line.count

    def show_each(line: Line, done: int, total: int) -> None:
        remember(line, done, total)
        line.show()

    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    monkeypatch.setattr(Line, "count", show_each)


def _said(line: str, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", screen)
    app(line.split(), standalone_mode=False)
    return screen.getvalue()


@pytest.mark.usefixtures("folder", "at_once")
@pytest.mark.parametrize("line", COMMANDS)
def test_a_terminal_is_shown_a_line_that_goes_away(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _said(line, Terminal(), monkeypatch)
    assert f"{ERASE}{COMMANDS[line]}" in said
    *shown, last = said.split(ERASE)
    assert [each for each in shown if re.search(r"(a second|, \d+ s)[^$]", each)] == []  # no line
    assert last == "" or last.endswith("\n")  # goes on behind one of progress


@pytest.mark.usefixtures("folder", "at_once")
@pytest.mark.parametrize("line", [*COMMANDS][::6])
def test_a_pipe_is_shown_none(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ERASE not in _said(line, io.StringIO(), monkeypatch)


@pytest.mark.usefixtures("folder", "at_once")
@pytest.mark.parametrize("line", QUIET)
def test_with_json_a_terminal_is_shown_none(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ERASE not in _said(f"{line} --json", Terminal(), monkeypatch)


@pytest.mark.usefixtures("folder", "at_once")
@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_a_ci_job_and_a_dumb_terminal_are_shown_none(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert ERASE not in _said(next(iter(COMMANDS)), Terminal(), monkeypatch)


def test_nothing_is_shown_before_a_second_has_gone_by() -> None:
    now, screen = [10.0], Terminal()
    line = Line("searching", "structures", screen, lambda: now[0])
    line.count(3, 96)
    for now[0] in (10.0, 10.5, 11.0):
        line.show()
    line.erase()
    assert screen.getvalue() == ""


def test_then_count_and_rate_are_shown_and_taken_away() -> None:
    now, screen = [10.0], Terminal()
    line = Line("searching", "structures", screen, lambda: now[0])
    line.count(3000, 12000)
    now[0] = 12.0
    line.show()
    line.show()
    assert screen.getvalue() == f"{ERASE}searching: 3,000 of 12,000 structures, 1,500 a second"
    line.erase()
    assert screen.getvalue().endswith(f" a second{ERASE}")


def test_where_nothing_is_counted_the_seconds_are() -> None:
    now, screen = [0.0], Terminal()
    line = Line("explaining", "", screen, lambda: now[0])
    for now[0] in (1.2, 1.3, 2.4):
        line.show()
    assert screen.getvalue() == f"{ERASE}explaining, 1 s{ERASE}explaining, 2 s"


@pytest.mark.usefixtures("folder", "at_once")
def test_an_error_takes_the_line_away_too(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(SpecError), working("breaking off"):
        raise SpecError("no")
    assert screen.getvalue() == f"{ERASE}breaking off, 0 s{ERASE}"
