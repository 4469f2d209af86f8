"""Tables fit the page, keep every number, and are not cut down a pipe."""

import shlex

import pytest

from zeroplan.estimation.record import Estimate
from zeroplan.report.answer import answer_text
from zeroplan.report.terminal import ENDLESS, Page, command_text, page, prose, table_text
from zeroplan.rows import Column, Table
from zeroplan.spec.toml import load_spec

ASKED = load_spec(model="8b", gpus=64, link="ib")


def _lines(answer: Estimate, width: int, *, wide: bool = False) -> list[str]:
    return answer_text(answer, ASKED, Page(width=width), wide=wide).splitlines()


@pytest.mark.parametrize("width", [80, 100])
def test_every_line_fits_the_page(answer: Estimate, width: int) -> None:
    assert max(map(len, _lines(answer, width))) <= width


@pytest.mark.parametrize("width", [80, 100, ENDLESS])
def test_every_number_of_a_row_is_whole_and_in_its_place(answer: Estimate, width: int) -> None:
    memory, time = (line.split() for line in _lines(answer, width) if line.split()[:1] == ["ddp"])
    assert memory[:7] == ["ddp", "10.0", "5.00", "8.00", "101", "11.0", "130"]
    assert time == ["ddp", "0.375", "0", "0", "25.0", "0.268", "1.50", "2,730", "43.8"]


def test_words_stay_in_one_line_where_there_is_room(answer: Estimate) -> None:
    assert any("backward, block 31  " in line for line in _lines(answer, 100))
    assert any(line.endswith("does not fit") for line in _lines(answer, 100))


def test_wide_shows_more_and_cuts_nothing(answer: Estimate) -> None:
    lines = "\n".join(_lines(answer, ENDLESS, wide=True))
    for head in ("reserved", "headroom", "HFU", "optimizer", "bound", "broadcast"):
        assert head in lines
        assert head not in "\n".join(_lines(answer, 100)[:18])


def test_heads_say_name_and_unit(answer: Estimate) -> None:
    lines = _lines(answer, 100)
    assert lines[0] == "Memory per GPU [GiB], 79.0 usable"
    assert "[s]" in "\n".join(lines)
    assert "meters" in "\n".join(lines)


def test_notes_and_assumptions_are_listed(answer: Estimate) -> None:
    lines = _lines(answer, 100)
    assert "- sharding.bucket_bytes is ignored: <ddp> only." in lines
    assert any(line.startswith("- cuda_context_bytes 0.466 GiB (assumed") for line in lines)
    assert any(line.startswith("- cluster: gpu") for line in lines)


def test_colour_repeats_the_word_and_only_when_asked(answer: Estimate) -> None:
    coloured = answer_text(answer, ASKED, Page(width=100, coloured=True))
    assert "\x1b[31mdoes not fit\x1b[0m" in coloured
    assert "\x1b[32mfits" in coloured
    assert "\x1b" not in answer_text(answer, ASKED, Page(width=100))


def test_colour_changes_nothing_else(answer: Estimate) -> None:
    coloured = answer_text(answer, ASKED, Page(width=100, coloured=True))
    for code in ("1", "31", "32", "33", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    plain = answer_text(answer, ASKED, Page(width=100))
    assert [line.rstrip() for line in coloured.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(
    ("environment", "width", "coloured"),
    [
        ({}, ENDLESS, False),
        ({"COLUMNS": "90"}, 90, False),
        ({"FORCE_COLOR": "1"}, ENDLESS, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, ENDLESS, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, ENDLESS, True),
    ],
)
def test_a_pipe_is_endless_and_colourless_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], width: int, coloured: bool
) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert page() == Page(width=width, coloured=coloured)
    assert page(wide=True).width == ENDLESS


def test_words_fold_and_numbers_do_not() -> None:
    table = Table(
        title="t",
        columns=(Column(name="words", is_text=True), Column(name="num\u00adber", unit="s")),
        rows=(("one two three", 1234), (None, None)),
    )
    assert table_text(table, Page(width=12)).splitlines() == [
        "t",
        "",
        "        num-",
        "         ber",
        "words    [s]",
        "────────────",
        "one    1,230",
        "two",
        "three",
        "-          -",
    ]


def test_names_fold_at_hyphens_where_a_table_would_be_too_wide() -> None:
    table = Table(
        title="t",
        columns=(Column(name="gpu", is_text=True), Column(name="s")),
        rows=(("rtx-pro-6000", 1234),),
    )
    assert table_text(table, Page(width=12)).splitlines()[-3:] == ["rtx-   1,230", "pro-", "6000"]


def test_figures_that_find_no_room_go_on_below_behind_the_names() -> None:
    table = Table(
        title="t",
        columns=(
            Column(name="gpu", is_text=True),
            *(Column(name=name) for name in ("one", "two", "three")),
        ),
        rows=(("h100", 123000, 456000, 789000),),
    )
    assert table_text(table, Page(width=21)).splitlines() == [
        "t",
        "",
        "gpu      one     two",
        "────────────────────",
        "h100 123,000 456,000",
        "",
        "gpu    three",
        "────────────",
        "h100 789,000",
    ]


def test_names_that_leave_no_room_go_on_below_behind_the_first_ones() -> None:
    names = ("gpu", "link", "loss", "dtype", "optimizer")
    table = Table(
        title="t",
        columns=(*(Column(name=name, is_text=True) for name in names), Column(name="s")),
        rows=(("h100", "ib", "chunked", "bf16", "adamw", 123000),),
    )
    assert table_text(table, Page(width=24)).splitlines() == [
        "t",
        "",
        "gpu  link loss    dtype",
        "───────────────────────",
        "h100 ib   chunked bf16",
        "",
        "gpu  optimizer       s",
        "──────────────────────",
        "h100 adamw     123,000",
    ]


def test_a_command_goes_on_behind_backslashes_and_means_the_same() -> None:
    command = "zeroplan estimate --model 'my models/a.json' --gpus 64 --link ib"
    shown = command_text(command, Page(width=40))
    assert max(map(len, shown.splitlines())) <= 40
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(command)
    assert command_text(command, Page(width=ENDLESS)) == f"  {command}\n"


def test_prose_keeps_to_its_width_and_its_words() -> None:
    text = prose(["word " * 60, "end"], Page(width=ENDLESS))
    assert max(map(len, text.splitlines())) <= 100
    assert text.split() == ["word"] * 60 + ["end"]
