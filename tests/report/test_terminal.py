"""Tables fit the terminal, and nothing is cut down a pipe."""

from itertools import pairwise

import pytest

from zeroplan.estimation.record import Estimate
from zeroplan.report.terminal import show
from zeroplan.spec.toml import load_spec

ASKED = load_spec(model="8b", gpus=64, link="ib")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def _lines(
    answer: Estimate, capsys: pytest.CaptureFixture[str], *, wide: bool = False
) -> list[str]:
    show(answer, ASKED, wide=wide)
    return capsys.readouterr().out.splitlines()


def test_nothing_is_cut_down_a_pipe(answer: Estimate, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(_lines(answer, capsys, wide=True))
    assert "…" not in text
    assert "backward, block 31" in text
    assert "does not fit" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_both_tables_fit_and_keep_every_number(
    answer: Estimate,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = _lines(answer, capsys)
    assert max(map(len, lines)) <= columns
    assert not any("…" in line for line in lines)
    for numbers in (["10.0", "5.00", "8.00", "101", "11.0", "130"], ["0.375", "25.0", "1.50"]):
        row = next(
            line.split() for line in lines if line.split()[:1] == ["ddp"] and numbers[0] in line
        )
        positions = [row.index(number) for number in numbers]
        assert all(a < b for a, b in pairwise(positions))


def test_notes_are_shown_as_they_are(answer: Estimate, capsys: pytest.CaptureFixture[str]) -> None:
    assert "sharding.bucket_bytes is ignored: <ddp> only." in _lines(answer, capsys)


def test_colour_comes_when_forced_and_goes_when_refused(
    answer: Estimate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[32m" in "\n".join(_lines(answer, capsys))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in "\n".join(_lines(answer, capsys))


def test_an_unknown_figure_is_a_dash(answer: Estimate, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split() for line in _lines(answer, capsys, wide=True)]
    assert any(row[:1] == ["fsdp2"] and "-" in row for row in rows)
