"""What a number of tokens takes is steps of the estimate, and money is hours times a price."""

import tomllib
from pathlib import Path

import pytest

from zeroplan.errors import UsageError
from zeroplan.estimation import estimate
from zeroplan.estimation.budget import parse_prices, parse_tokens, with_budget
from zeroplan.estimation.tables import tables
from zeroplan.hardware import load_catalogue

NODES = Path(__file__).parents[2] / "hardware_profiles" / "nodes"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("2T", 2 * 10**12),
        ("300B", 3 * 10**11),
        ("1.5e12", 1_500_000_000_000),
        ("15.6t", 15_600_000_000_000),
        ("500m", 5 * 10**8),
        ("20_000", 20_000),
    ],
)
def test_tokens_are_read_as_people_write_them(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "T", "2X", "-2T", "0", "0.1", "nan", "1e30", "2 T 3"])
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--tokens"):
        parse_tokens(text)


def test_prices_are_one_for_all_gpus_or_one_for_each() -> None:
    assert parse_prices(None, None) == {}
    assert parse_prices("$2.5", None) == {"": 2.5}
    each = "h100-sxm5-80gb=2.5, a100-sxm4-80gb=1.4"
    assert parse_prices(each, None) == {"h100-sxm5-80gb": 2.5, "a100-sxm4-80gb": 1.4}


@pytest.mark.parametrize(
    "text", ["", "free", "0", "-1", "nan", "inf", "2.5,1.4", "2.5,", "a100-sxm4-80gb=cheap"]
)
def test_what_is_no_price_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"--price = .*\(2\.5\) or one for each \(h100.*=2\.5,a"):
        parse_prices(text, None)


def test_the_price_of_a_gpu_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--price = 'h100=2': gpu 'h100' is not known\. Perhaps"):
        parse_prices("h100=2", None)


def test_a_run_is_as_many_steps_as_its_tokens_ask_for() -> None:
    """64 GPUs x 2 sequences x 4 micro-steps x 4096 tokens are 2,097,152 a step."""
    one = estimate(model="8b", gpus=64, micro_batch_size=2, gradient_accumulation_steps=4)
    answer = with_budget(one, 2_097_152 * 10 + 1, {"": 2.0}, None)
    for before, after in zip(one.estimates, answer.estimates, strict=True):
        budget, time = after.budget, before.time
        assert before.budget is None
        assert budget is not None
        assert budget.steps == 11
        assert budget.run_seconds == 11 * (time.step_seconds or 0)
        assert budget.low_run_seconds == 11 * (time.low_seconds or 0)
        assert budget.high_run_seconds == 11 * (time.high_seconds or 0)
        assert budget.gpu_seconds == 64 * budget.run_seconds
        assert budget.cost_usd == pytest.approx(budget.gpu_seconds / 3600 * 2.0)
        assert budget.high_cost_usd == pytest.approx(budget.high_gpu_seconds / 3600 * 2.0)
        assert after.memory == before.memory


def test_the_price_of_a_node_type_is_that_of_its_profile_with_date_and_source() -> None:
    profile = tomllib.loads((NODES / "lambda-8xh100.toml").read_text())
    answer = with_budget(estimate(model="8b", node="lambda-8xh100"), 10**9, {}, None)
    budget = answer.estimates[0].budget
    assert budget is not None
    assert budget.price_usd_per_gpu_hour == profile["usd_per_hour"]["value"] / 8
    assert budget.price_source is not None
    assert profile["price_date"] in budget.price_source


def test_a_price_belongs_to_the_node_type_with_its_own_links() -> None:
    node = load_catalogue().node("lambda-8xh100")
    told = f"; with its own {node.node_link.value} rather than ib-ndr400"
    for gpus, link, end in (
        (16, "ib", told),
        (8, "ib", ""),
        (16, node.node_link.value, ""),
        (16, None, ""),
    ):
        one = estimate(model="8b", node=node.id, gpus=gpus, link=link or "auto")
        budget = with_budget(one, 10**9, {}, None).estimates[0].budget
        assert budget is not None
        assert (budget.price_source or "").partition(")")[2] == end


def test_a_given_price_wins_over_the_node_types() -> None:
    answer = with_budget(estimate(model="8b", node="lambda-8xh100"), 10**9, {"": 1.25}, None)
    budget = answer.estimates[0].budget
    assert budget is not None
    assert (budget.price_usd_per_gpu_hour, budget.price_source) == (1.25, "as given")


def test_each_gpu_has_the_price_that_is_given_for_it() -> None:
    prices = {"h100-sxm5-80gb": 2.5, "": 1.4}
    for gpu, usd in (("h100-sxm5-80gb", 2.5), ("a100-sxm4-80gb", 1.4)):
        budget = with_budget(estimate(model="8b", gpu=gpu), 10**9, prices, None).estimates[0].budget
        assert budget is not None
        assert budget.price_usd_per_gpu_hour == usd


def test_without_a_price_there_is_no_cost_but_a_way_to_get_one() -> None:
    answer = with_budget(estimate(model="8b"), 10**9, {}, None)
    budget = answer.estimates[0].budget
    assert budget is not None
    assert budget.cost_usd is budget.low_cost_usd is budget.high_cost_usd is None
    (note,) = [note for note in answer.notes if "--price" in note]
    assert "lambda-8xh100" in note


def test_the_table_has_what_fits_alone() -> None:
    answer = with_budget(estimate(model="8b", gpus=8), 2 * 10**12, {"": 2.5}, None)
    *_, last = tables(answer)
    assert last.title == "2T tokens"
    assert [row[0] for row in last.rows] == [
        each.strategy for each in answer.estimates if each.fits
    ]
    assert "cost" in [column.name for column in last.columns]
    nothing = with_budget(estimate(model="70b", gpus=8), 2 * 10**12, {"": 2.5}, None)
    assert not nothing.fits
    assert all("tokens" not in table.title.split() for table in tables(nothing))
