"""Several values, a number of tokens, and the two questions on the command line."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeroplan.cli import app
from zeroplan.errors import SpecError, UsageError


def _zeroplan(*arguments: str, code: int = 0, width: str = "80") -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": width, "NO_COLOR": "1"})
    if isinstance(result.exception, SpecError | UsageError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


SEVERAL = (
    "estimate", "-m", "8b", "-n", "16", "--link", "ib,ethernet-100g,ethernet-10g",
    "--gpu", "h100-sxm5-80gb,a100-sxm4-80gb",
)  # fmt: skip


def test_several_values_are_one_table_of_80_columns_with_a_winner() -> None:
    page = _zeroplan(*SEVERAL)
    assert page.startswith("6 combinations side by side")
    assert max(map(len, page.splitlines())) <= 80
    assert "Fastest that fits: gpu h100-sxm5-80gb, link ib" in " ".join(page.split())


def test_a_winner_that_is_tight_is_said_to_be() -> None:
    keys = (
        "-m",
        "8b",
        "-n",
        "8",
        "-s",
        "8192",
        "--strategy",
        "fsdp2",
        "--activation-checkpointing",
    )
    page = _zeroplan("estimate", *keys, "full,none")
    assert "activation_checkpointing none, fsdp2 (tight): " in " ".join(page.split())
    assert "(tight)" not in _zeroplan("estimate", *keys, "full,selective")


def test_best_shows_one_strategy_of_each_combination() -> None:
    rule = "─" * 40
    assert _zeroplan(*SEVERAL, "--best").partition(rule)[2].partition("\n\n")[0].count("fits") == 6
    assert _zeroplan(*SEVERAL).partition(rule)[2].partition("\n\n")[0].count("fits") > 6


def test_several_values_are_one_document_whose_answers_are_those_of_one(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    document = json.loads(_zeroplan(*SEVERAL, "--strategy", "fsdp2", "--json", "--csv", str(file)))
    one = json.loads(
        _zeroplan("estimate", "-m", "8b", "-n", "16", "--link", "ethernet-10g",
                  "--gpu", "a100-sxm4-80gb", "--strategy", "fsdp2", "--json")
    )  # fmt: skip
    last = document["answers"][-1]
    assert last.pop("values") == {"cluster.gpu": "a100-sxm4-80gb", "cluster.link": "ethernet-10g"}
    assert last == one
    with file.open(encoding="utf-8") as lines:
        assert len(list(csv.DictReader(lines))) == 6


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--model", "1b,8b"),
        ("--gpus", "8,16"),
        ("--strategy", "fsdp2,zero3"),
        ("-b", "1,2"),
        ("-s", "1024,2048"),
        ("--activation-checkpointing", "none,full"),
        ("--reshard-after-forward", "true,false"),
        ("--zero-hpz-partition-size", "1,8"),
    ],
)
def test_any_key_may_have_several_values(flag: str, values: str) -> None:
    asked = ["--gpus", "16"] if flag != "--gpus" else []
    asked += ["--strategy", "zero3" if "hpz" in flag else "fsdp2"] if flag != "--strategy" else []
    model = ["--model", "1b"] if flag != "--model" else []
    document = json.loads(_zeroplan("estimate", *model, *asked, flag, values, "--json"))
    (varied,) = document["varied"].values()
    assert varied == values.split(",")
    assert len(document["answers"]) == 2


def test_a_value_that_has_commas_in_it_stays_one() -> None:
    page = _zeroplan(
        "estimate", "-m", "1b", "--lora-rank", "8", "--lora-targets", "q_proj,v_proj",
        "--strategy", "fsdp2", "--json",
    )  # fmt: skip
    assert json.loads(page)["inputs"]["tuning"]["lora_targets"] == "q_proj,v_proj"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "8,"), "a value is missing beside a comma"),
        (("--gpus", "8,16", "--show-spec"), "one value to each flag"),
        (("--price", "2"), "needs --tokens"),
        (("--tokens", "many"), "2T, 300B or 1.5e12"),
        (("--tokens", "2T", "--price", "free"), "USD per GPU-hour"),
        (
            ("-b", ",".join(map(str, range(1, 30))), "-s", "1,2,4,8,16,32,64,128"),
            "232 combinations",
        ),
    ],
)
def test_a_wrong_question_is_refused_with_its_remedy(
    arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _zeroplan("estimate", "-m", "1b", *arguments)


def test_tokens_add_days_hours_and_cost_in_80_columns() -> None:
    page = _zeroplan("estimate", "-m", "8b", "-n", "64", "--tokens", "2T", "--price", "2.5")
    table = page.partition("2T tokens\n")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "days" in page
    assert "A GPU-hour costs 2.50 USD: as given." in page


def test_why_slow_and_make_it_fit_are_asked_one_at_a_time() -> None:
    with pytest.raises(UsageError, match="one at a time"):
        _zeroplan("explain", "-m", "1b", "--why-slow", "--make-it-fit")


def test_both_questions_have_an_answer_for_a_person_and_one_for_a_program() -> None:
    slow = ("explain", "-m", "1b", "-n", "16", "--link", "ethernet-10g", "--strategy", "fsdp2")
    assert "waiting for communication" in _zeroplan(*slow, "--why-slow")
    assert json.loads(_zeroplan(*slow, "--why-slow", "--json"))["cause"] == "communication"
    large = ("explain", "-m", "1b", "-n", "8", "--strategy", "fsdp2", "-b", "64")
    assert "What makes it fit" in _zeroplan(*large, "--make-it-fit")
    document = json.loads(_zeroplan(*large, "--make-it-fit", "--json"))
    assert document["changes"]


def test_what_cannot_be_made_to_fit_exits_with_4() -> None:
    _zeroplan("explain", "-m", "405b", "-n", "1", "--gpu", "l4", "--strategy", "none",
              "--make-it-fit", code=4)  # fmt: skip


def test_two_clusters_are_compared_by_the_price_of_each() -> None:
    gpus = ("--gpu", "h100-sxm5-80gb,a100-sxm4-80gb", "--strategy", "fsdp2", "--tokens", "1T")
    prices = "h100-sxm5-80gb=2.5,a100-sxm4-80gb=0.5"
    page = _zeroplan("estimate", "-m", "8b", *gpus, "--price", prices)
    assert "Cheapest: gpu a100-sxm4-80gb, fsdp2" in " ".join(page.split())
    with pytest.raises(UsageError, match=r"--price = '2\.5,0\.5': two prices .*h100-sxm5-80gb=2"):
        _zeroplan("estimate", "-m", "8b", *gpus, "--price", "2.5,0.5")


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ("lambda-8xh100,dgx-a100", "It is also the only one with a price: "),
        ("dgx-h100,bm-gpu-a100-v2-8", "Only one with a price: node bm-gpu-a100-v2-8, fsdp2: "),
        (
            "lambda-8xh100,bm-gpu-a100-v2-8,dgx-a100",
            "It is also the cheapest of those with a price",
        ),
        ("lambda-8xh100,bm-gpu-a100-v2-8", "It is also the cheapest: "),
    ],
)
def test_the_cheapest_is_of_those_with_a_price(nodes: str, told: str) -> None:
    asked = ("--tokens", "2T", "--strategy", "fsdp2", "--node", nodes)
    assert told in " ".join(_zeroplan("estimate", "-m", "8b", *asked).split())
