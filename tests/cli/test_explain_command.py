"""`zeroplan explain` tells a person and a program why an estimate is what it is."""

import json

import pytest
from typer.testing import CliRunner

from zeroplan.cli.explain import app

ASKED = ("--model", "8b", "--gpus", "8", "--strategy", "zero2")


def _explain(*arguments: str, width: str | None = None, code: int = 0) -> str:
    env = {"COLUMNS": width, "NO_COLOR": "1"}
    result = CliRunner().invoke(app, arguments, env=env)
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.parametrize("width", ["80", "100"])
def test_every_line_fits_the_page(width: str) -> None:
    assert max(map(len, _explain(*ASKED, width=width).splitlines())) <= int(width)


def test_a_pipe_is_as_wide_as_is_easy_to_read_unless_asked_for_more() -> None:
    assert max(map(len, _explain(*ASKED).splitlines())) <= 100
    assert len(_explain(*ASKED, "--wide")) > len(_explain(*ASKED))


def test_a_person_reads_what_is_explained_and_every_part() -> None:
    page = _explain("--model", "8b", "--gpus", "8")
    first = page.splitlines()[0]
    assert first.startswith("8b on 8 x h100-sxm5-80gb")
    assert "the fastest strategy that fits" in first
    for title in (
        "Live at the peak: ",
        "The next moments",
        "What would lower the peak, and its price",
        "Where the bytes come from",
        "Where the seconds come from",
        "Which assumption matters most",
    ):
        assert title in page


def test_zero_2_is_told_beside_deepspeeds_own_estimator() -> None:
    assert "DeepSpeed's estimator beside the peak" in _explain(*ASKED)
    assert "DeepSpeed's estimator" not in _explain("--model", "8b", "--strategy", "fsdp2")


def test_a_program_reads_one_document() -> None:
    document = json.loads(_explain(*ASKED, "--json"))
    assert document["estimate"]["strategy"] == "zero2"
    live = sum(buffer["bytes"] for buffer in document["buffers"])
    assert live == document["estimate"]["memory"]["peak_tensor_bytes"]


def test_what_does_not_fit_is_explained_all_the_same() -> None:
    page = _explain("--model", "70b", "--gpus", "8", "--strategy", "ddp", code=4)
    assert "does not fit" in page
    assert "strategy fsdp2" in page
