"""What makes a run fit does, and nothing cheaper was left out."""

import json
from typing import Any

import pytest

from zeroplan.estimation import answer, estimate, steps
from zeroplan.estimation.changes import Candidate, remedy
from zeroplan.estimation.make_it_fit import MakeItFit, make_it_fit
from zeroplan.estimation.steps import Clocked
from zeroplan.records import replace
from zeroplan.report.advice import fit_text
from zeroplan.report.terminal import Page
from zeroplan.timing.walk import Timing

LARGE: dict[str, Any] = {"model": "1b", "gpus": 8, "strategy": "fsdp2", "micro_batch_size": 64}


@pytest.fixture(scope="module")
def told() -> MakeItFit:
    return make_it_fit(**LARGE)


def test_each_change_fits_when_it_is_made(told: MakeItFit) -> None:
    assert not told.fits
    assert 0 < len(told.changes) <= 3
    missing = -(told.estimate.memory.headroom_bytes or 0)
    assert told.missing_bytes == missing > 0
    for each in told.changes:
        words = (part.split() for part in each.change.split(", "))
        keys: dict[str, Any] = {name: int(v) if v.isdigit() else v for name, v in words}
        made = estimate(**LARGE | keys).estimates[0]
        assert made.fits
        assert made.memory.device_bytes == each.device_bytes
        assert made.time.step_seconds == each.step_seconds


def test_the_cheapest_comes_first_and_no_key_twice(told: MakeItFit) -> None:
    rates = [each.tokens_per_second_per_gpu for each in told.changes if "," not in each.change]
    assert rates == sorted(rates, reverse=True)
    kinds = [tuple(part.split()[0] for part in each.change.split(", ")) for each in told.changes]
    assert len(set(kinds)) == len(kinds)


def test_no_single_change_of_these_is_cheaper(told: MakeItFit) -> None:
    """Each of them by itself, tried here by hand."""
    cheapest = max(each.tokens_per_second_per_gpu for each in told.changes)
    for keys in (
        {"micro_batch_size": 8, "gradient_accumulation_steps": 8},
        {"micro_batch_size": 1, "gradient_accumulation_steps": 64},
        {"loss": "chunked"},
        {"loss": "fused-linear"},
        {"strategy": "zero3"},
        {"gpus": 16},
        {"optimizer": "adamw-8bit"},
    ):
        made = estimate(**LARGE | keys).estimates[0]
        if made.fits:
            assert made.time.tokens_per_second_per_gpu is not None
            assert made.time.tokens_per_second_per_gpu <= cheapest * (1 + 1e-9)


def test_the_batch_stays_where_the_micro_batch_shrinks() -> None:
    told = make_it_fit(model="8b", gpus=8, strategy="zero2", micro_batch_size=16)
    changes = [each.change for each in told.changes]
    smaller = [change for change in changes if change.startswith("micro_batch_size")]
    assert smaller
    for change in smaller:
        (_, batch), (_, steps) = (part.split() for part in change.split(", ")[:2])
        assert int(batch) * int(steps) == 16


def test_what_only_may_fit_is_not_said_to_fit() -> None:
    told = make_it_fit(model="8b", gpus=8, strategy="fsdp2", micro_batch_size=8)
    assert told.estimate.verdict == "tight"
    assert "It may fit" in fit_text(told, Page(width=80))


def test_changes_that_are_all_tight_only_may_make_it_fit(told: MakeItFit) -> None:
    tight = replace(told, changes=tuple(replace(e, verdict="tight") for e in told.changes))
    page = fit_text(tight, Page(width=200))
    assert "none fits for certain" in page
    assert "What may make it fit" in page
    assert "What may make it fit" not in fit_text(told, Page(width=200))


def test_the_title_says_in_which_order_changes_stand(told: MakeItFit) -> None:
    first, *_ = told.changes
    slower = replace(first, tokens_per_second_per_gpu=first.tokens_per_second_per_gpu / 2)
    sinking, rising = (replace(told, changes=each) for each in ((first, slower), (slower, first)))
    assert "fit, the cheapest first" in fit_text(sinking, Page(width=80))
    assert "single changes, then several, the cheapest of each first" in fit_text(
        rising, Page(width=80)
    )
    may = replace(slower, verdict="tight")
    faster = replace(first, verdict="tight")
    for changes in ((first, may), (first, slower, faster)):
        beside = fit_text(replace(told, changes=changes), Page(width=80)).replace("\n", " ")
        assert "What makes it fit, the cheapest first, then what only may" in beside


def test_whole_checkpoints_are_found() -> None:
    told = make_it_fit(**LARGE | {"loss": "fused-linear", "activation_checkpointing": "none"})
    assert "activation_checkpointing full" in [each.change for each in told.changes]


def test_what_fits_already_says_how_much_is_left() -> None:
    found = make_it_fit(model="1b", gpus=8, strategy="fsdp2")
    assert found.fits
    assert found.changes == ()
    assert found.missing_bytes == found.tried == 0
    page = fit_text(found, Page(width=80))
    assert "It fits already" in page
    assert " left" in page


def test_where_one_change_does_not_suffice_two_are_made() -> None:
    """1.24B parameters in fp32 with Adam are 20 GB of an L4's 22; 16 sequences have 100 GB logits."""
    told = make_it_fit(model="1b", gpus=1, gpu="l4", strategy="none", micro_batch_size=16)
    assert not told.fits
    assert told.changes
    for each in told.changes:
        assert ", " in each.change
        assert each.verdict != "does_not_fit"


def test_another_strategy_is_tried_with_what_it_can_offload() -> None:
    """70B parameters with Adam are a terabyte: 8 GPUs hold it beside a CPU that updates."""
    keys: dict[str, Any] = {"model": "70b", "gpus": 8}
    told = make_it_fit(strategy="ddp", **keys)
    changes = {each.change: each for each in told.changes}
    offloaded = changes["strategy zero3, offload_optimizer cpu"]
    alone = estimate(strategy="zero3", offload_optimizer="cpu", **keys).estimates[0]
    assert (offloaded.verdict, alone.verdict) == ("fits", "fits")
    assert offloaded.device_bytes == alone.memory.device_bytes
    assert "strategy fsdp2, offload_parameters cpu" in changes


def test_another_strategy_is_tried_with_full_checkpoints_too() -> None:
    told = make_it_fit(
        model="70b", gpus=8, strategy="ddp", activation_checkpointing="none", sequence_length=16384
    )
    assert told.changes
    for each in told.changes:
        assert "activation_checkpointing full" in each.change
        assert "offload_" in each.change


def test_what_fits_for_certain_comes_before_what_only_may() -> None:
    told = make_it_fit(model="8b", gpus=8, strategy="zero2", micro_batch_size=16)
    assert [each.verdict for each in told.changes] == ["fits"] * 3


def test_fsdp_is_told_to_offload_once() -> None:
    """It moves parameters, gradients and states together, whatever the optimizer's key says."""
    told = make_it_fit(model="70b", gpus=16, strategy="fsdp2", micro_batch_size=4)
    offloaded = [each.change for each in told.changes if "offload_" in each.change]
    assert offloaded == ["offload_parameters cpu"]


def test_where_nothing_helps_the_nearest_miss_is_told() -> None:
    found = make_it_fit(model="405b", gpus=1, gpu="l4", strategy="none")
    assert not found.answered
    assert found.changes == ()
    assert found.nearest is not None
    assert found.nearest_missing_bytes is not None
    assert 0 < found.nearest_missing_bytes < found.missing_bytes
    assert "Nothing makes it fit" in fit_text(found, Page(width=80))


def test_offloading_says_what_the_host_needs() -> None:
    now, then = (
        estimate(model="8b", gpus=2, strategy="zero3", offload_optimizer=where).estimates[0]
        for where in ("none", "cpu")
    )
    told = remedy(
        Candidate({"sharding.offload_optimizer": "cpu"}, (), "the CPU updates"), now, then
    )
    assert f"{then.memory.host_bytes / 2**30:.0f} GiB of host memory" in told.why


def test_the_json_and_the_page(told: MakeItFit) -> None:
    document = json.loads(told.to_json())
    assert document["fits"] is False
    assert [each["change"] for each in document["changes"]] == [e.change for e in told.changes]
    page = fit_text(told, Page(width=80))
    assert max(map(len, page.splitlines())) <= 80
    assert "What makes it fit" in page
    assert "What makes it fit" in told._repr_html_()


def test_only_what_fits_is_run_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Clocked] = []

    def timed(run: Clocked) -> Timing:
        ran.append(run)
        return steps.timed(run)

    monkeypatch.setattr(answer, "timed", timed)
    told = make_it_fit(model="1b", gpus=1, strategy="none", micro_batch_size=256)
    assert not told.fits
    assert told.changes
    assert 1 < len(ran) < told.tried / 2
