"""`zeroplan backtest` answers on stdout and says by its exit code whether a tolerance holds."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from zeroplan.cli import app
from zeroplan.errors import SpecError, UsageError, ZeroplanError

RUNS = """\
id,source_id,strategy,model_name,seq_len,micro_batch_per_gpu,gpus,gpu,step_time_s,tp
1,log,fsdp2,llama-3.1-8b,4096,1,8,h100-sxm5-80gb,1.0,
2,log,ddp,llama-3.1-8b,4096,1,8,h100-sxm5-80gb,1.0,2
"""

SWEEP = """\
id,source,fabric,collective,gpu,n_gpus,gpus_per_node,n_nodes,message_bytes,time_us
1,log,nvlink,all_gather,h100-sxm5-80gb,8,8,1,536870912,1500
"""


LOGS = Path(__file__).parents[1] / "backtesting" / "logs"
LOG = LOGS / "torchtitan_colours.log"


@pytest.fixture
def runs(tmp_path: Path) -> str:
    path = tmp_path / "runs.csv"
    path.write_text(RUNS, encoding="utf-8")
    return str(path)


def _run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["backtest", *arguments], env={"COLUMNS": "120"})
    if isinstance(result.exception, ZeroplanError):
        raise result.exception
    return result


def test_a_program_reads_rows_skipped_rows_and_a_summary(runs: str) -> None:
    result = _run(runs, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [row["id"] for row in document["rows"]] == ["1"]
    assert [row["id"] for row in document["skipped"]] == ["2"]
    assert document["summary"][0]["source_id"] == "log"


def test_a_person_reads_the_errors_and_why_rows_were_skipped(runs: str) -> None:
    page = _run(runs).stdout
    assert "step seconds" in page
    assert "overall" in page
    assert "- 1: tp = 2: only data parallelism is modelled" in page


def test_a_sweep_of_collectives_has_a_flag(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text(SWEEP, encoding="utf-8")
    document = json.loads(_run("--collectives", str(path), "--json").stdout)
    assert document["summary"][0]["size_class"] == ">256MiB"


def test_outside_the_tolerance_exits_with_5_and_still_answers(runs: str) -> None:
    error = json.loads(_run(runs, "--json").stdout)["summary"][0]["median_abs_error"]
    assert _run(runs, "--tolerance", str(error * 1.01)).exit_code == 0
    outside = _run(runs, "--json", "--tolerance", str(error * 0.99))
    assert outside.exit_code == 5
    assert json.loads(outside.stdout)["rows"]
    assert outside.stderr.startswith("outside the tolerance")


def test_every_prediction_goes_to_a_file(runs: str, tmp_path: Path) -> None:
    path = tmp_path / "errors.csv"
    result = _run(runs, "--output", str(path))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2
    assert result.stderr == f"wrote {path}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "nothing to read: name a CSV of measured runs, or a training log"),
        (["runs.csv", "-m", "8b"], "runs.csv: a table says itself what ran"),
        ([str(LOG)], r"a log does not say what ran: describe the run with --spec run.toml"),
        (["runs.csv", "--tolerance", "10%"], "--tolerance '10%': write a fraction"),
        (["runs.csv", "--tolerance", "nan"], "--tolerance 'nan': write a fraction"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _run(*arguments)


def test_a_chart_is_drawn_and_told_in_words(runs: str, tmp_path: Path) -> None:
    result = _run(runs, "--plot", str(tmp_path / "parity.png"))
    assert result.exit_code == 0
    assert (tmp_path / "parity.png").stat().st_size > 10_000
    assert "Predicted against measured: " in result.stderr
    with pytest.raises(UsageError, match=r"ends in one of \.png, \.svg, \.pdf"):
        _run(runs, "--plot", str(tmp_path / "parity.jpeg"))


def test_a_file_that_is_not_there_is_a_spec_error() -> None:
    with pytest.raises(SpecError, match="No such file"):
        _run("absent.csv")


def test_a_log_and_its_spec_tell_how_far_off_the_prediction_is(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    spec = ["--spec", str(LOGS / "run.toml"), "--no-compile", "--gradient-clipping", "0"]
    result = _run(str(LOG), *spec, "--output", str(rows))
    assert result.exit_code == 0
    assert "step" in result.stdout
    assert "49.61 GiB" in result.stdout
    told = result.stderr.splitlines()
    assert told[0].startswith(f"{LOG}: torchtitan log: step of 1.399 s, the median of 6 readings")
    assert told[1:] == [f"{LOG}: peak of 49.61 GiB reserved.", f"wrote {rows}"]
    document = json.loads(_run(str(LOG), *spec, "--json").stdout)
    again = json.loads(_run(str(rows), "--json").stdout)
    for one, other in zip(document["rows"], again["rows"], strict=True):
        assert other["error_fraction"] == pytest.approx(one["error_fraction"], rel=1e-9)


def test_a_tolerance_holds_for_a_log_too() -> None:
    spec = ["--spec", str(LOGS / "run.toml")]
    assert _run(str(LOG), *spec, "--tolerance", "100").exit_code == 0
    assert _run(str(LOG), *spec, "--tolerance", "0").exit_code == 5
