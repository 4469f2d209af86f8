"""Several values of a key: each combination is the answer that it gets alone."""

import csv
import io
import json
from typing import Any

import pytest

from zeroplan.errors import SpecError, UsageError
from zeroplan.estimation import estimate
from zeroplan.estimation.record import Estimate
from zeroplan.estimation.several import MOST, Comparison, compare, csv_of, tokens_per_second
from zeroplan.estimation.several_tables import tables
from zeroplan.spec.run import Run

LINKS: list[object] = ["ib", "ethernet-10g"]
GPUS: list[object] = ["h100-sxm5-80gb", "a100-sxm4-80gb"]


def _answer(run: Run) -> Estimate:
    return estimate(run)


def _compare(strategies: list[object] | None = None, **varied: list[object]) -> Comparison:
    tables_of = {"link": "cluster", "gpu": "cluster", "gpus": "cluster", "strategy": "sharding"}
    values: dict[str, object] = {"model.source": "8b", "cluster.gpus": 16}
    if strategies is None:
        values["sharding.strategy"] = "fsdp2"
    else:
        varied["strategy"] = strategies
    named = {f"{tables_of.get(key, 'training')}.{key}": found for key, found in varied.items()}
    return compare(values, named, _answer)


@pytest.fixture(scope="module")
def told() -> Comparison:
    return _compare(link=LINKS, gpu=GPUS)


def test_each_combination_is_what_it_is_alone(told: Comparison) -> None:
    asked = [dict(each.values) for each in told.answers]
    assert [(each["cluster.link"], each["cluster.gpu"]) for each in asked] == [
        (link, gpu) for link in LINKS for gpu in GPUS
    ]
    for each, values in zip(told.answers, asked, strict=True):
        alone: dict[str, Any] = {key.partition(".")[2]: value for key, value in values.items()}
        assert each.answer == estimate(model="8b", gpus=16, strategy="fsdp2", **alone)


def test_the_best_is_what_all_gpus_together_do_most_with(told: Comparison) -> None:
    best = told.best(tokens_per_second)
    assert best is not None
    assert dict(best[0].values) == {"cluster.link": "ib", "cluster.gpu": "h100-sxm5-80gb"}


def test_more_gpus_win_in_all_and_not_per_gpu() -> None:
    told = _compare(gpus=[8, 64], link=["ethernet-10g", "ib"])
    fastest = told.best(tokens_per_second)
    frugal = told.best(lambda _, found: found.time.tokens_per_second_per_gpu or 0.0)
    assert fastest is not None
    assert frugal is not None
    assert fastest[0].answer.inputs.cluster.gpus == 64
    rates = [row[1].time.tokens_per_second_per_gpu or 0.0 for row in told.rows()]
    assert frugal[1].time.tokens_per_second_per_gpu == max(rates)


def test_a_link_that_cannot_be_bought_does_not_win() -> None:
    told = _compare(link=["nvlink", "ib"], gpus=[64])
    hypothetical, real = told.answers
    assert hypothetical.answer.hypothetical
    assert not real.answer.hypothetical
    assert tokens_per_second(hypothetical, hypothetical.answer.estimates[0]) > tokens_per_second(
        real, real.answer.estimates[0]
    )
    assert told.best(tokens_per_second) == (real, real.answer.estimates[0])
    assert next(tables(told)).rows[0][0] == "nvlink (hypothetical)"


def test_what_fits_is_shown_and_else_what_is_nearest() -> None:
    told = compare({"model.source": "70b"}, {"cluster.gpus": [8, 64]}, _answer)
    few, many = told.answers
    shown = [found for each, found in told.rows() if each is few]
    room = [found.memory.headroom_bytes or 0 for found in few.answer.estimates]
    assert not few.answer.fits
    assert [found.memory.headroom_bytes for found in shown] == [max(room)]
    assert [found for each, found in told.rows() if each is many] == [
        found for found in many.answer.estimates if found.fits
    ]
    assert [found for each, found in told.rows(best=True) if each is many] == [many.answer.fastest]


def test_only_what_varies_is_a_column(told: Comparison) -> None:
    heads = [column.name for column in next(tables(told)).columns]
    assert heads[:2] == ["link", "gpu"]
    assert "gpus" not in heads
    named = _compare(["fsdp2", "zero3"])
    assert [column.name for column in next(tables(named)).columns][:2] == ["strategy", "device"]


def test_each_verdict_stands_beside_the_two_figures_that_it_compares() -> None:
    alike = next(tables(_compare(gpu=GPUS)))
    assert alike.title == "2 combinations side by side, 79.1 GiB usable"
    apart = next(tables(_compare(gpu=["h100-sxm5-80gb", "h200-sxm-141gb"])))
    heads = [column.name for column in apart.columns]
    device, usable = heads.index("device"), heads.index("us\u00adable")
    assert heads[usable + 1] == "ver\u00addict"
    for row in apart.rows:
        assert isinstance(room := row[usable], float)
        assert isinstance(held := row[device], float)
        assert (held <= room) == (row[usable + 1] == "fits")
    assert apart.rows[0][usable] != apart.rows[1][usable]


def test_a_combination_that_cannot_be_is_told_with_its_reason() -> None:
    """64 ranks share the state in one case of the four, where there are only 8."""
    told = compare(
        {"model.source": "8b", "sharding.strategy": "fsdp2"},
        {"sharding.shard_size": [8, 64], "cluster.gpus": [8, 64]},
        _answer,
    )
    refused = [dict(each.values) for each in told.refused]
    assert {"sharding.shard_size": "64", "cluster.gpus": "8"} in refused
    assert all("shard_size" in each.why for each in told.refused)
    assert len(told.answers) + len(told.refused) == 4


def test_a_value_that_never_works_is_a_fault() -> None:
    with pytest.raises(SpecError, match="h100-sxm9"):
        _compare(gpu=["h100-sxm9", "a100-sxm4-80gb"])
    with pytest.raises(SpecError, match="not a multiple"):
        _compare(gpus=[8, 12])


def test_more_combinations_than_anybody_reads_are_refused_with_their_number() -> None:
    many: list[object] = list(range(1, MOST + 2))
    with pytest.raises(UsageError, match=rf"{MOST + 1} combinations.*plan"):
        _compare(micro_batch_size=many)


def test_the_json_names_what_varies_the_best_and_every_whole_answer(told: Comparison) -> None:
    document = json.loads(told.to_json())
    assert list(document) == [
        "schema_version", "zeroplan_version", "varied", "best", "answers", "refused"
    ]  # fmt: skip
    assert document["varied"] == {"cluster.link": LINKS, "cluster.gpu": GPUS}
    for each, answered in zip(document["answers"], told.answers, strict=True):
        assert each.pop("values") == dict(answered.values)
        assert each == answered.answer.to_dict()
    assert document["best"]["strategy"] == "fsdp2"


def test_the_csv_has_a_line_for_every_strategy_of_every_combination(told: Comparison) -> None:
    lines = list(csv.DictReader(io.StringIO(csv_of(told.answers))))
    assert [(line["cluster.link"], line["cluster.gpu"]) for line in lines] == [
        (link, gpu) for link in LINKS for gpu in GPUS
    ]
    for line, each in zip(lines, told.answers, strict=True):
        found = each.answer.estimates[0]
        assert int(line["memory.peak_allocated_bytes"]) == found.memory.peak_allocated_bytes
        assert float(line["time.step_seconds"]) == found.time.step_seconds


def test_a_notebook_shows_the_table(told: Comparison) -> None:
    assert "ethernet-10g" in told._repr_html_()
