"""`zeroplan plan` tells a person and a program which configuration is best."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from zeroplan import estimate
from zeroplan.cli import estimate as estimate_command
from zeroplan.cli.plan import OBJECTIVES as OFFERED
from zeroplan.cli.plan import app
from zeroplan.errors import MissingPartError, SpecError, UsageError
from zeroplan.search.record import OBJECTIVES
from zeroplan.search.space import Space

SMALL = ("-m", "llama-3.2-1b", "-n", "8", "--strategy", "ddp,fsdp2", "-b", "1,64", "--workers", "1")


def _plan(*arguments: str, width: str = "80", code: int = 0) -> str:
    env = {"COLUMNS": width, "NO_COLOR": "1"}
    result = CliRunner().invoke(app, arguments, env=env, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_person_reads_the_best_and_how_to_look_closer() -> None:
    page = _plan(*SMALL)
    assert page.startswith("18 plans, ")
    command = page.partition("Look closer:\n")[2].partition("\n\n")[0].replace("\\\n", "")
    alone = CliRunner().invoke(estimate_command.app, [*shlex.split(command)[2:], "--json"])
    found = json.loads(_plan(*SMALL, "--json"))
    told = json.loads(alone.stdout)["estimates"][0]
    assert told["memory"]["device_bytes"] == found["best"][0]["device_bytes"]
    assert told["time"]["step_seconds"] == pytest.approx(found["best"][0]["step_seconds"])
    assert max(map(len, page.splitlines())) <= 80


def test_the_page_says_which_plans_it_shows_and_which_it_does_not_count() -> None:
    found = json.loads(_plan(*SMALL, "--strategy", "fsdp2,hsdp", "-b", "1,2", "--json"))
    best, fitting = len(found["best"]), found["fitting"]
    (refused,) = found["refused"]
    page = _plan(*SMALL, "--strategy", "fsdp2,hsdp", "-b", "1,2")
    assert f"{refused['plans']} more cannot be and are not among them" in page
    assert f"The best of each structure and machine: {best} of {fitting} plans that fit" in page
    assert best < fitting


def test_the_one_strategy_that_is_asked_for_is_named() -> None:
    page = _plan("-m", "llama-3.2-1b", "-n", "8", "--strategy", "fsdp2", "-b", "1")
    assert "Fastest: fsdp2 on 8 h100-sxm5-80gb, " in page


def test_a_range_doubles() -> None:
    found = json.loads(_plan(*SMALL, "-n", "2..16", "--strategy", "fsdp2", "--json"))
    assert found["searched"]["cluster.gpus"] == [2, 4, 8, 16]


def test_the_fewest_gpus_are_looked_for_from_one_on() -> None:
    found = json.loads(
        _plan(
            "-m", "8b", "--strategy", "fsdp2", "-b", "1", "--min-gpus", "--json", "--workers", "1"
        )
    )
    best = found["best"][0]
    half = estimate(model="8b", strategy="fsdp2", gpus=best["gpus"] // 2).estimates[0]
    assert half.verdict != "fits"
    assert found["objective"] == "fewest-gpus"


def test_every_plan_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "plans.csv"
    _plan(*SMALL, "--csv", str(file))
    table = pd.read_csv(file)
    assert len(table) == 18
    assert set(table.strategy) == {"ddp", "fsdp2"}
    assert list(tmp_path.iterdir()) == [file]


def test_parquet_has_the_same_plans_or_says_what_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "plans.parquet"
    if find_spec("pyarrow") is None:
        with pytest.raises(MissingPartError, match="pip install pyarrow"):
            _plan(*SMALL, "--csv", str(tmp_path / "plans.csv"), "--parquet", str(file))
        assert list(tmp_path.iterdir()) == []
        return
    _plan(*SMALL, "--parquet", str(file))
    assert len(pd.read_parquet(file)) == 18


def test_prices_make_the_cheapest() -> None:
    page = _plan(*SMALL, "--objective", "cheapest", "--price", "2.5")
    assert "Cheapest: " in page
    assert "USD per million tokens" in page


@pytest.mark.parametrize("prices", [(), ("--price", "h100-sxm5-80gb=2.5")])
def test_a_gpu_without_a_price_is_told_before_anything_is_searched(
    prices: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Space, "structures", searched)
    asked = ("--gpu", "h100-sxm5-80gb,a100-sxm4-80gb", "--objective", "cheapest")
    missing = "a100-sxm4-80gb" if prices else "h100-sxm5-80gb"
    told = f"--objective cheapest: no price is known for {missing}: .* --price {missing}=2.50"
    with pytest.raises(UsageError, match=told):
        _plan(*SMALL, *asked, *prices, "--csv", str(tmp_path / "plans.csv"))
    assert list(tmp_path.iterdir()) == []


def test_the_prices_of_node_types_make_the_cheapest_and_are_told() -> None:
    asked = (*SMALL, "--objective", "cheapest", "--node")
    page = " ".join(_plan(*asked, "lambda-8xh100,bm-gpu-a100-v2-8").split())
    assert "Cheapest: " in page
    assert "A GPU-hour costs 3.99 USD: lambda-8xh100, 2026-09-25 (Lambda" in page
    assert "A GPU-hour costs 4.00 USD: bm-gpu-a100-v2-8, " in page
    with pytest.raises(UsageError, match="no price is known for a100-sxm4-80gb in dgx-a100: "):
        _plan(*asked, "lambda-8xh100,dgx-a100")


def test_the_help_names_every_objective() -> None:
    told = " ".join(_plan("--help", width="200").split())
    assert f"What is best: {', '.join(list(OBJECTIVES)[:-1])} or {list(OBJECTIVES)[-1]}." in told
    assert list(OBJECTIVES) == list(OFFERED)


def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    whole = _plan(*SMALL, "--resume", str(file))
    assert _plan(*SMALL, "--resume", str(file)) == whole
    with pytest.raises(SpecError, match="is not of this search"):
        _plan(*SMALL, "-b", "1,2", "--resume", str(file))


def test_what_the_fewest_gpus_are_looked_for_in_is_cut_differently(tmp_path: Path) -> None:
    asked = (*SMALL, "-n", "4,8", "--resume", str(tmp_path / "search.jsonl"))
    _plan(*asked, "--objective", "fastest")
    _plan(*asked, "--objective", "most-headroom")
    with pytest.raises(SpecError, match="and whether the fewest GPUs are looked for"):
        _plan(*asked, "--objective", "fewest-gpus")


@pytest.mark.parametrize("objective", ["fastest", "cheapest", "most-headroom"])
def test_the_fewest_gpus_and_another_objective_are_not_looked_for_at_once(objective: str) -> None:
    told = f"--min-gpus: looks for fewest-gpus, --objective for {objective}: leave one"
    with pytest.raises(UsageError, match=told):
        _plan(*SMALL, "--min-gpus", "--objective", objective)
    assert _plan(*SMALL, "--min-gpus", "--objective", "fewest-gpus") == _plan(*SMALL, "--min-gpus")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (("--csv", "folder"), "--csv folder: is a folder; name a file"),
        (("--parquet", "file/k.parquet"), "--parquet file/k.parquet: nothing can be written"),
        (("--csv", ""), "--csv '': name a file"),
        (("--parquet", ""), "--parquet '': name a file"),
        (("--resume", ""), "--resume '': name a file"),
        (("--csv", "k", "--parquet", "./k"), "--parquet ./k: is the file of --csv, too"),
        (("--csv", "k", "--resume", "link"), "--resume link: is the file of --csv, too"),
        (("--csv", "k", "--workers", "none"), "--workers 'none': use a whole number"),
        (("--csv", "k", "--resume", "file/k"), "--resume file/k: Not a directory"),
        (("--csv", "k", "--resume", "file"), "--resume file: it is not of this search"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_searched(
    files: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("no journal", encoding="utf-8")
    (tmp_path / "link").symlink_to("k")
    monkeypatch.setattr("zeroplan.cli.plan._write_all", pytest.fail)
    monkeypatch.setattr("zeroplan.cli.plan._search", pytest.fail)
    with pytest.raises((UsageError, SpecError), match=re.escape(told)):
        _plan(*SMALL, *files)
    assert not (tmp_path / "k").exists()


def test_an_interrupt_while_every_plan_is_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Space, "families", interrupted)
    file = tmp_path / "plans.csv"
    result = CliRunner().invoke(app, [*SMALL, "--csv", str(file)])
    told = f"zeroplan: interrupted: --csv {file}: nothing was written.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", told)
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_fits_is_an_answer() -> None:
    page = _plan("-m", "70b", "-n", "8", "--strategy", "ddp", "--workers", "1", code=4)
    assert "Nothing fits" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "fast"), "--objective 'fast': use one of fastest"),
        (("--global-batch-size", "many"), "--global-batch-size 'many': use a whole number"),
        (("--workers", "0"), "--workers '0': use a whole number of 1 or more"),
        (("--price", "h100-sxm5-80gb=cheap"), "--price = 'h100-sxm5-80gb=cheap': that is no price"),
    ],
)
def test_a_wrong_flag_is_told(arguments: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        _plan(*SMALL, *arguments)


def test_micro_steps_are_given_once() -> None:
    with pytest.raises(SpecError, match="leave one of the two out"):
        _plan(*SMALL, "--global-batch-size", "64", "--gradient-accumulation-steps", "2")


def test_tokens_are_told_with_days_hours_and_cost() -> None:
    page = _plan(*SMALL, "--tokens", "300B", "--price", "2.5", width="200")
    assert "\n300B tokens, training steps alone: " in page
    told = json.loads(_plan(*SMALL, "--tokens", "300B", "--price", "2.5", "--json"))
    budget = told["estimate"]["estimates"][0]["budget"]
    usd = told["best"][0]["usd_per_million_tokens"]
    assert budget["cost_usd"] == pytest.approx(usd * 300_000, rel=1e-4)
    with pytest.raises(UsageError, match="--tokens = 'many'"):
        _plan(*SMALL, "--tokens", "many")
