"""Nothing that a command prints is wider than a terminal of 80 columns, and nothing is cut."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeroplan.cli import app
from zeroplan.cli.flags import MOST_USED, flag
from zeroplan.cli.light import COMMANDS
from zeroplan.spec.reading import keys

PAGES = [(), *((name,) for name in COMMANDS)]
PAGES += [("hardware", name) for name in ("list", "show", "diff", "check")]
SWEEPS = Path(__file__).parents[1] / "comm" / "sweeps.csv"
RUNS = (
    "id,strategy,gpus,gpu,seq_len,micro_batch_per_gpu,n_layers,hidden,n_heads,n_kv_heads,ffn,vocab,"
    "step_time_s\na-run-with-a-long-name-of-its-own,fsdp2,8,rtx-pro-6000-blackwell-server,2048,1,16,"
    "2048,32,8,8192,32000,0.5\n"
)
ASKED = "-m llama-3.2-1b -n 16 --gpu rtx-pro-6000-blackwell-server"
ANSWERS = [
    f"estimate {ASKED}",
    f"estimate {ASKED} --tokens 2T --price 2.5",
    "estimate -m 405b -n 16384 --strategy torch-zero1 -b 512",
    f"estimate {ASKED} --link ib-ndr400,ethernet-100g -b 1,2 --tokens 2T --price 2.5",
    "estimate -m 8b -n 8 --strategy zero3 --offload-parameters cpu --offload-optimizer cpu",
    "estimate -m 8b -n 8 --lora-rank 16 --base-quantization nf4",
    f"plan {ASKED} --strategy ddp,fsdp2 -b 1,2 --price 2.5",
    f"explain {ASKED} --strategy fsdp2",
    f"explain {ASKED} --strategy fsdp2 --why-slow",
    "explain -m 8b -n 8 --strategy zero2 -b 16 --make-it-fit",
    "inspect deepseek-v3",
    "hardware list",
    "hardware show h100-sxm5-80gb",
    "hardware show ethernet-100g",
    "hardware show nd96isr-h100-v5",
    "hardware diff rtx-pro-6000-blackwell-server h100-sxm-96gb-hbm2e",
    "backtest runs.csv",
    f"backtest --collectives {SWEEPS}",
    f"calibrate --collectives {SWEEPS} --link nvlink4",
    f"report {ASKED} -b 1 -s 2048",
]


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_no_name_and_no_sentence_of_a_help_page_is_cut(page: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*page, "--help"], env={"COLUMNS": "80"}).output
    assert shown.count("\n") > 10
    assert "\u2026" not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    "page", [("estimate",), ("plan",), ("explain",), ("validate",)], ids=" ".join
)
def test_every_flag_of_a_help_page_can_be_copied(page: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*page, "--help"], env={"COLUMNS": "80"}).output
    lacking = [flag(dotted) for dotted in keys() if not re.search(rf"{flag(dotted)}[ ,]", shown)]
    assert lacking == []


@pytest.mark.parametrize("command", ["estimate", "plan", "explain"])
def test_the_flags_most_used_come_first(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).output
    first = shown.partition(" Most used ")[2].partition("\u2570")[0]
    assert re.findall(r"^\u2502 (--\S+)", first, re.MULTILINE) == [flag(key) for key in MOST_USED]
    assert shown.index(" Most used ") < shown.index(" Model ")
    assert shown.count("--micro-batch-size ") == first.count("--micro-batch-size ")


@pytest.mark.parametrize("line", ANSWERS)
def test_an_answer_keeps_to_the_page(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs.csv").write_text(RUNS)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, line.split(), env={"COLUMNS": "80"})
    assert done.exit_code in (0, 4), done.output
    lines = done.stdout.splitlines()
    wide = [each for each in lines if len(each) > 80 and "https://" not in each]
    assert lines
    assert wide == []
    assert "\u2026" not in done.stdout
