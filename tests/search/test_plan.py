"""The best of many plans is what trying every one of them finds."""

import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from zeroplan import estimate, plan, sweep
from zeroplan.errors import SpecError, UsageError
from zeroplan.hardware import load_catalogue
from zeroplan.report.plan import plan_text
from zeroplan.report.terminal import Page
from zeroplan.search.journal import Journal
from zeroplan.search.plan import search
from zeroplan.search.record import Search
from zeroplan.search.space import Space, space_of
from zeroplan.search.sweep import write_csv
from zeroplan.spec.toml import by_dotted_key

AXES: dict[str, list[object]] = {
    "strategy": ["ddp", "zero1", "zero2", "zero3", "fsdp2"],
    "gpus": [8, 16],
    "micro_batch_size": [1, 2, 4, 16],
    "sequence_length": [1024, 4096],
    "gradient_accumulation_steps": [1, 2, 5, 8],
    "activation_checkpointing": ["none", "selective", "full"],
    "link": ["ib", "ethernet-25g"],
    "loss": ["fp32-logits", "fused-linear"],
}
PRICES = {"": 2.0}


def _small_space(seed: int) -> dict[str, Any]:
    """Draw up to three values for each of some keys."""
    draw = random.Random(seed)
    keys: dict[str, Any] = {
        "model": draw.choice(["llama-3.2-1b", "qwen3-4b", "8b"]),
        "reshard_after_forward": True,  # else both ways are tried
    }
    for name, values in AXES.items():
        keys[name] = draw.sample(values, draw.choice([1, 1, 2]))
    return keys


def _by_trying(keys: dict[str, Any], objective: str) -> float | None:
    """Return the best figure that single estimates find; None where none fits."""
    lists = [each if isinstance(each, list) else [each] for each in keys.values()]
    best: list[float] = []
    for values in itertools.product(*lists):
        one = dict(zip(keys, values, strict=True))
        found = estimate(**one).estimates[0]
        if found.verdict == "fits":
            speed = (found.time.tokens_per_second_per_gpu or 0.0) * one["gpus"]
            headroom = found.memory.headroom_bytes or 0
            figures = {
                "fastest": -speed,
                "cheapest": one["gpus"] / speed,
                "fewest-gpus": one["gpus"],
                "most-headroom": -headroom,
            }
            best.append(figures[objective])
    return min(best, default=None)


def _figure(found: Search) -> float | None:
    best = found.chosen
    if best is None:
        return None
    return {
        "fastest": -best.tokens_per_second,
        "cheapest": best.gpus / best.tokens_per_second,
        "fewest-gpus": best.gpus,
        "most-headroom": -best.headroom_bytes,
    }[found.objective]


def _assert_best(seed: int, objective: Any) -> None:
    keys = _small_space(seed)
    found = plan(objective=objective, prices=PRICES, **keys)
    tried = _by_trying(keys, objective)
    if tried is None:
        assert found.chosen is None
    else:
        assert _figure(found) == pytest.approx(tried, rel=1e-9)


@pytest.mark.parametrize("objective", ["fastest", "cheapest", "fewest-gpus", "most-headroom"])
def test_the_best_is_what_trying_every_plan_finds(objective: str) -> None:
    _assert_best(1, objective)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_the_best_of_fifty_small_spaces_is_what_trying_every_plan_finds(seed: int) -> None:
    _assert_best(seed, ("fastest", "cheapest", "fewest-gpus", "most-headroom")[seed % 4])


def _toy_space(**changed: object) -> Space:
    keys: dict[str, object] = {
        "model": "llama-3.2-1b",
        "strategy": ["ddp", "fsdp2"],
        "micro_batch_size": [1, 64],
    }
    return space_of(by_dotted_key(keys | changed))


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    space, file = _toy_space(), tmp_path / "search.jsonl"
    whole = search(space, "fastest", prices={}, journal=Journal(file, space))
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:2]) + lines[2][:20], encoding="utf-8")
    again = Journal(file, space)
    assert list(again.known) == [0]
    assert search(space, "fastest", prices={}, journal=again).to_dict() == whole.to_dict()
    assert file.read_text(encoding="utf-8").splitlines(keepends=True) == lines


@pytest.mark.parametrize(
    "damaged",
    [
        lambda line: line[:20],
        lambda _: b"[]",
        lambda _: b"",
        lambda _: b"\xff\xfe\x00",
        lambda line: line.partition(b" ")[2],
        lambda line: line.replace(b'"plans"', b'"planes"'),
        lambda line: line.replace(b'"plans": ', b'"plans": 1'),
    ],
    ids=["cut", "a list", "empty", "binary", "no digest", "another key", "another number"],
)
def test_a_damaged_journal_names_the_line_and_the_remedy(
    damaged: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    space, file = _toy_space(), tmp_path / "search.jsonl"
    whole = search(space, "fastest", prices={}, journal=Journal(file, space))
    head, first, second = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join((head, damaged(first), second, b"")))
    with pytest.raises(SpecError, match=r"--resume .*, line 2: b.* is damaged: take the line out"):
        Journal(file, space)
    file.write_bytes(b"\n".join((head, second, b"")))
    again = Journal(file, space)
    assert list(again.known) == [1]
    assert search(space, "fastest", prices={}, journal=again).to_dict() == whole.to_dict()


def test_a_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    Journal(file, _toy_space())
    with pytest.raises(SpecError, match=r"is not of this search"):
        Journal(file, _toy_space(gpus=[16]))
    with pytest.raises(UsageError, match=r"--resume .*: No such file"):
        Journal(tmp_path / "nowhere" / "search.jsonl", _toy_space())


def test_an_interrupted_search_tells_the_best_so_far() -> None:
    def stop(done: int, total: int) -> None:
        del total
        if done == 1:
            raise KeyboardInterrupt

    found = search(_toy_space(), "fastest", prices={}, progress=stop)
    assert found.interrupted
    assert found.chosen is not None
    assert found.chosen.keys["sharding.strategy"] == "ddp"


@pytest.mark.parametrize("strategy", ["ddp", "hsdp"], ids=["too large", "refused on one node"])
def test_a_search_that_is_stopped_before_anything_fits_does_not_say_that_nothing_does(
    strategy: str,
) -> None:
    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    space = _toy_space(model="70b", strategy=[strategy, "fsdp2"])
    found = search(space, "fastest", prices={}, progress=stop)
    assert found.interrupted
    assert found.chosen is None
    page = plan_text(found, Page(width=80), command="")
    assert page.startswith("Interrupted: nothing that fits was found so far.")
    assert "Nothing fits" not in page
    assert "nothing fits" not in repr(found)


def test_processes_find_what_one_finds() -> None:
    space = _toy_space()
    assert search(space, "fastest", prices={}, workers=2) == search(space, "fastest", prices={})


def test_a_global_batch_sets_the_micro_steps() -> None:
    found = plan(
        model="llama-3.2-1b",
        strategy="fsdp2",
        gpus=8,
        micro_batch_size=[1, 2, 3],
        global_batch_size=64,
    )
    assert found.chosen is not None
    keys = found.chosen.keys
    size, steps = (
        keys[f"training.{name}"] for name in ("micro_batch_size", "gradient_accumulation_steps")
    )
    assert isinstance(size, int)
    assert isinstance(steps, int)
    assert size * steps * 8 == 64
    (refused,) = found.refused
    assert "global_batch_size = 64" in refused.why


def test_a_near_miss_says_what_it_lacks() -> None:
    found = plan(model="8b", gpus=8, strategy="fsdp2", micro_batch_size=[2, 6])
    assert found.chosen is not None
    assert found.near_misses
    for miss in found.near_misses:
        assert miss.choice.tokens_per_second > found.chosen.tokens_per_second
        tight = miss.choice.verdict == "tight"
        words = "is within the uncertainty of the limit" if tight else "needed, 79.1 GiB usable"
        assert words in miss.why


@pytest.mark.parametrize("strategy", ["fsdp2", ["ddp", "fsdp2"]])
def test_where_nothing_nearly_fits_the_nearest_is_told(strategy: Any, tmp_path: Path) -> None:
    sizes = {"micro_batch_size": [1, 2], "activation_checkpointing": ["none", "full"]}
    space = space_of(by_dotted_key({"model": "70b", "gpus": 8, "strategy": strategy, **sizes}))
    file = tmp_path / "search.jsonl"
    found = search(space, "fastest", prices={}, journal=Journal(file, space))
    assert found.chosen is None
    assert not found.near_misses
    least = min(
        (
            estimate(
                model="70b",
                gpus=8,
                strategy=each,
                micro_batch_size=1,
                activation_checkpointing="full",
            ).estimates[0]
            for each in ("ddp", "fsdp2")
        ),
        key=lambda each: -(each.memory.headroom_bytes or 0),
    )
    assert found.nearest is not None
    assert found.nearest.missing_bytes == -(least.memory.headroom_bytes or 0)
    assert found.nearest.strategy == "fsdp2"
    again = search(space, "fastest", prices={}, journal=Journal(file, space))
    assert again.to_dict() == found.to_dict()
    page = plan_text(found, Page(width=200), command="")
    missing = found.nearest.missing_bytes / 2**30
    assert "Nearest comes fsdp2 on 8 h100-sxm5-80gb, activation checkpointing full" in page
    assert f"{missing:.3g} GiB missing" in page


def test_the_nearest_is_on_a_real_link_where_there_is_one() -> None:
    keys: dict[str, Any] = {"model": "1t", "gpus": 64, "micro_batch_size": 1, "strategy": "zero3"}
    found = plan(link=["nvlink", "ib"], **keys).nearest
    assert found is not None
    assert (found.keys["cluster.link"], found.hypothetical) == ("ib", None)
    page = plan_text(plan(link="nvlink", **keys), Page(width=100), command="")
    assert "Hypothetical: one domain of 64 h100-sxm5-80gb" in page


def test_the_nearest_is_not_told_where_something_nearly_fits() -> None:
    found = plan(model="8b", gpus=8, strategy="fsdp2", micro_batch_size=[2, 6])
    assert found.nearest is None


def test_a_strategy_that_has_no_meaning_on_one_node_is_told() -> None:
    found = plan(model="llama-3.2-1b", gpus=8, micro_batch_size=1, activation_checkpointing="full")
    (refused,) = found.refused
    assert refused.plans == 2
    assert refused.why.startswith("hsdp left out: on one node")


def test_cheapest_needs_prices() -> None:
    with pytest.raises(SpecError, match=r"no price is known for h100-sxm5-80gb.*--price"):
        plan(model="llama-3.2-1b", strategy="fsdp2", objective="cheapest")


def test_without_a_price_the_node_types_counts_and_says_so() -> None:
    keys: dict[str, Any] = {"model": "8b", "strategy": "zero3", "micro_batch_size": 1}
    found = plan(objective="cheapest", node=["lambda-8xh100", "bm-gpu-a100-v2-8"], **keys)
    profiles = {name: load_catalogue().node(name) for name in ("lambda-8xh100", "bm-gpu-a100-v2-8")}
    for each in found.best:
        name = str(each.keys["cluster.node"])
        usd = profiles[name].usd_per_hour
        assert usd is not None
        assert each.price_usd_per_gpu_hour == usd.value / 8
        assert (each.price_source or "").startswith(f"{name}, {profiles[name].price_date} (")
    given = plan(objective="cheapest", node="lambda-8xh100", prices={"": 1.0}, **keys)
    assert {(each.price_usd_per_gpu_hour, each.price_source) for each in given.best} == {
        (1.0, "as given")
    }


def test_plans_without_a_price_are_not_weighed_against_money() -> None:
    """dgx-a100 is bought, not rented: its profile has no price."""
    keys: dict[str, Any] = {"model": "8b", "strategy": "zero3", "micro_batch_size": 1}
    found = plan(node=["lambda-8xh100", "dgx-a100"], gpus=[8, 16], **keys)
    assert {each.keys["cluster.node"] for each in found.best} == {"lambda-8xh100", "dgx-a100"}
    assert {each.keys["cluster.node"] for each in found.frontier} == {"lambda-8xh100"}


def test_a_sweep_has_a_row_for_each_combination() -> None:
    table = sweep(
        model="llama-3.2-1b", strategy=["ddp", "fsdp2"], micro_batch_size=[1, 2], gpus=[8, 16]
    )
    assert len(table) == 8
    row = table[(table.strategy == "ddp") & (table.micro_batch_size == 2) & (table.gpus == 16)]
    alone = estimate(model="llama-3.2-1b", strategy="ddp", micro_batch_size=2, gpus=16).estimates[0]
    assert row.device_bytes.item() == alone.memory.device_bytes
    assert row.step_seconds.item() == pytest.approx(alone.time.step_seconds)


def test_what_cannot_be_is_counted_and_told() -> None:
    table = sweep(model="llama-3.2-1b", strategy="hsdp", gpus=16, shard_size=[8, 5])
    assert len(table) == 1
    ((why, plans),) = table.attrs["refused"].items()
    assert "5 does not divide" in why
    assert plans == 1


def test_json_has_no_number_that_is_none() -> None:
    found = plan(model="8b", gpus=8, strategy=["ddp", "fsdp2"])
    told = json.loads(found.to_json())
    assert told["estimate"]["estimates"][0]["strategy"] == "fsdp2"
    assert told["plans"] > told["fitting"] > 0


def test_a_search_shows_itself_in_a_notebook() -> None:
    found = plan(model="llama-3.2-1b", gpus=[8, 16], micro_batch_size=[1, 2], sequence_length=4096)
    shown = found._repr_html_()  # Jupyter's own name
    title = f"The best of each structure and machine: {len(found.best)} of {found.fitting:,} plans"
    assert f"<caption>{title} that fit</caption>" in shown
    assert repr(found).startswith(f"Search({found.plans:,} plans, {found.fitting:,} fit; fastest: ")


def test_strategies_that_cannot_offload_are_left_out_beside_those_that_can() -> None:
    keys: dict[str, Any] = {"model": "llama-3.2-1b", "gpus": 8, "offload_optimizer": "cpu"}
    table = sweep(strategy=["ddp", "zero2", "zero3"], micro_batch_size=[1, 2], **keys)
    assert list(table["strategy"]) == ["zero2", "zero2", "zero3", "zero3"]
    ((why, plans),) = table.attrs["refused"].items()
    assert "ddp keeps its states on the GPU" in why
    assert plans == 2


def test_a_price_for_all_gpus_leaves_one_plan_of_each_number_on_the_frontier() -> None:
    """At the same rent the faster plan wins, whatever the last digits of the rent are."""
    keys: dict[str, Any] = {"model": "llama-3.1-8b", "sequence_length": 8192, "link": "ib"}
    gpus = [16, 32, 64, 128]
    found = plan(gpus=gpus, prices={"": 2.5}, global_batch_size=1024, **keys)
    assert [each.gpus for each in found.frontier] == gpus


def test_a_sweep_refuses_the_micro_steps_that_an_estimate_refuses() -> None:
    keys: dict[str, Any] = {"model": "qwen3-0.6b", "strategy": "fsdp2", "gpus": 8}
    table = sweep(**keys, optimizer_in_backward=True, gradient_accumulation_steps=[1, 3, 8])
    assert list(table["gradient_accumulation_steps"]) == [1]
    for count, (why, plans) in zip((3, 8), table.attrs["refused"].items(), strict=True):
        with pytest.raises(SpecError, match=re.escape(why)):
            estimate(**keys, optimizer_in_backward=True, gradient_accumulation_steps=count)
        assert plans == 1


@pytest.mark.parametrize("sizes", [[8, 32], [32, 8], 8])
def test_what_a_strategy_does_not_read_decides_nothing(sizes: Any) -> None:
    keys: dict[str, Any] = {"model": "70b", "gpus": 64, "activation_checkpointing": "full"}
    groups = {"shard_size": sizes, "replicate_size": [2, 8]}
    found = plan(strategy=["zero3", "hsdp"], **groups, **keys)
    alone = plan(strategy="zero3", **keys)
    assert found.chosen is not None
    assert alone.chosen is not None
    assert found.chosen.keys == {"sharding.strategy": "zero3", **alone.chosen.keys}
    assert found.chosen.step_seconds == alone.chosen.step_seconds


def test_a_fixed_value_that_a_strategy_does_not_read_decides_nothing() -> None:
    keys: dict[str, Any] = {"model": "70b", "gpus": 64, "strategy": ["zero3", "hsdp"]}
    found = plan(shard_size=8, replicate_size=2, **keys)
    assert {each.keys["sharding.strategy"] for each in found.best} == {"zero3"}
    assert found.estimate is not None
    assert found.estimate.inputs.sharding.shard_size is None


@pytest.mark.parametrize("several", [["none", "cpu"], ["cpu", "none"]])
def test_a_strategy_that_cannot_offload_runs_without_where_that_is_offered(
    several: list[str],
) -> None:
    table = sweep(model="llama-3.2-1b", strategy=["ddp", "zero2"], offload_optimizer=several)
    assert list(table["strategy"]) == ["ddp", "zero2", "zero2"]
    assert not table.attrs["refused"]


def test_a_table_has_nothing_where_a_key_is_not_read(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"model": "llama-3.2-1b", "gpus": 16, "strategy": ["zero3", "hsdp"]}
    sizes: dict[str, Any] = {"shard_size": [8, 4], "activation_checkpointing": ["none", "full"]}
    table = sweep(**keys, **sizes)
    assert [None if pd.isna(size) else size for size in table["shard_size"]] == [
        *(None, None), *(8, 8), *(4, 4)
    ]  # fmt: skip
    file = tmp_path / "plans.csv"
    write_csv(space_of(by_dotted_key({**keys, **sizes})), file)
    assert list(pd.read_csv(file)["shard_size"].fillna(0)) == [0, 0, 8, 8, 4, 4]


WIRED: dict[str, Any] = {"model": "8b", "gpus": 64, "micro_batch_size": 1, "strategy": "fsdp2"}


def test_a_link_that_no_machine_has_is_told_but_not_chosen() -> None:
    found = plan(link=["nvlink", "ib"], **WIRED)
    assert found.chosen is not None
    assert found.chosen.keys["cluster.link"] == "ib"
    assert all(each.keys["cluster.link"] == "ib" for each in found.frontier)
    unreal = [each.hypothetical is not None for each in found.best]
    assert unreal == sorted(unreal)
    assert [each.hypothetical is not None for each in found.best] == [
        each.keys["cluster.link"] == "nvlink" for each in found.best
    ]
    fastest = max(found.best, key=lambda each: each.tokens_per_second)
    assert (fastest.hypothetical or "").startswith("Hypothetical: one domain of 64 h100-sxm5-80gb")
    page = plan_text(found, Page(width=100), command="")
    summary, _, notes = page.partition("\nNotes\n")
    assert "64 (hypothetical)" in summary
    assert "Hypothetical: one domain of 64 h100-sxm5-80gb" in notes


def test_a_link_that_no_machine_has_is_chosen_where_nothing_else_is_there() -> None:
    found = plan(link="nvlink", **WIRED)
    (told,) = {each["hypothetical"] for each in found.to_dict()["best"]}
    page = plan_text(found, Page(width=100), command="")
    assert "Fastest: fsdp2 on 64 h100-sxm5-80gb (hypothetical), " in page
    assert page.replace("\n", " ").count(told) == 1


def test_the_fewest_gpus_are_of_a_machine_that_there_is() -> None:
    found = plan(
        objective="fewest-gpus", gpus=[16, 32, 64], gpus_per_node=[8, 16, 64], **_without("gpus")
    )
    assert found.chosen is not None
    assert (found.chosen.gpus, found.chosen.hypothetical) == (16, None)


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in WIRED.items() if key != name}


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 2),
        range(1, 3),
        np.array([1, 2]),
        list(np.array([1, 2])),
        pd.Series([1, 2], index=[5, 6]),
    ],
    ids=["tuple", "range", "array", "list of an array's", "column"],
)
def test_any_sequence_of_values_is_taken(sizes: Any) -> None:
    keys: dict[str, Any] = {"model": "llama-3.2-1b", "gpus": np.int64(8)}
    table = sweep(strategy=np.array(["ddp", "fsdp2"]), micro_batch_size=sizes, **keys)
    assert list(table["micro_batch_size"]) == [1, 2, 1, 2]
    assert list(table["strategy"]) == ["ddp", "ddp", "fsdp2", "fsdp2"]
    found = plan(strategy="fsdp2", micro_batch_size=sizes, **keys)
    assert found.searched["training.micro_batch_size"] == (1, 2)
    json.loads(found.to_json())


@pytest.mark.parametrize("sizes", [np.array([]), range(0), []])
def test_a_sequence_of_nothing_is_refused(sizes: Any) -> None:
    with pytest.raises(SpecError, match=r"micro_batch_size = \[\]: name one value or more"):
        sweep(model="llama-3.2-1b", micro_batch_size=sizes)


def test_an_array_of_what_is_no_value_is_refused() -> None:
    with pytest.raises(SpecError, match=r"micro_batch_size = 1.5: expected a whole number"):
        sweep(model="llama-3.2-1b", micro_batch_size=np.array([1.5, 2.0]))
    with pytest.raises(SpecError, match=r"micro_batch_size = \[1, 2\]: expected a whole number"):
        sweep(model="llama-3.2-1b", micro_batch_size=np.array([[1, 2]]))


def test_a_strategy_left_open_is_looked_for_among_all() -> None:
    found = plan(model="llama-3.2-1b", strategy="auto", micro_batch_size=1)
    assert "fsdp2" in found.searched["sharding.strategy"]


@pytest.mark.parametrize(
    "keys", [{"model": "nope"}, {"model": "8b", "link": "nope"}, {"model": "8b", "node": "nope"}]
)
def test_what_no_plan_can_have_is_refused_as_in_an_estimate(keys: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as alone:
        estimate(**keys)
    for search_of in (plan, sweep):
        with pytest.raises(SpecError) as found:
            search_of(**keys)
        assert str(found.value) == str(alone.value)


def test_of_several_reasons_the_first_is_told() -> None:
    with pytest.raises(SpecError, match=r"^nothing to price; the first of 2 reasons: .*5 does not"):
        plan(model="8b", strategy="hsdp", gpus=16, shard_size=[5, 7])


def test_tokens_are_told_for_the_best_plan() -> None:
    keys: dict[str, Any] = {"model": "8b", "gpus": 64, "strategy": "fsdp2", "micro_batch_size": 1}
    found = plan(tokens=2 * 10**12, prices={"": 2.5}, **keys)
    best, budget = found.chosen, found.budget
    assert best is not None
    assert budget is not None
    hours = 2e6 * best.gpu_hours_per_million_tokens
    assert budget.gpu_seconds / 3600 == pytest.approx(hours, rel=1e-6)
    assert budget.run_seconds * 64 == budget.gpu_seconds
    assert budget.cost_usd == pytest.approx(2.5 * hours, rel=1e-6)
    page = plan_text(found, Page(width=200), command="")
    days, low, high = (
        seconds / 86400
        for seconds in (budget.run_seconds, budget.low_run_seconds, budget.high_run_seconds)
    )
    assert f"2T tokens, training steps alone: {days:.1f} days ({low:.0f}-{high:.0f}), " in page
    (told,) = found.to_dict()["estimate"]["estimates"]
    assert told["budget"]["cost_usd"] == budget.cost_usd
    unpriced = plan_text(plan(tokens=10**12, **keys), Page(width=200), command="")
    assert "no cost without --price" in unpriced.replace("\n", " ")


def test_without_tokens_there_is_no_budget() -> None:
    found = plan(model="8b", strategy="zero3", gpus=8, micro_batch_size=1)
    assert found.budget is None
