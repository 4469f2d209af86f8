"""An explanation adds up to its estimate, and what it promises is what an estimate would say."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.explain import explain
from zeroplan.estimation.explain_record import Explanation, Term
from zeroplan.estimation.resolve import resolve
from zeroplan.hardware.catalogue import FOLDERS
from zeroplan.hardware.profile import Gpu
from zeroplan.schedule import script
from zeroplan.schedule.events import Event, Item, Script
from zeroplan.spec.toml import load_spec

LLAMA_70B = 70_553_706_496
"""Parameters of meta-llama/Llama-3.1-70B."""
LLAMA_2_7B = 6_738_415_616
"""Parameters of meta-llama/Llama-2-7b."""

CASES: tuple[dict[str, Any], ...] = (
    {"strategy": "fsdp2"},
    {"strategy": "fsdp2", "activation_checkpointing": "none"},
    {"strategy": "fsdp2", "activation_checkpointing": "selective", "reduce_dtype": "bf16"},
    {"strategy": "fsdp2", "root_wrap": "separate", "reshard_after_forward": 4},
    {"strategy": "fsdp2", "gradient_accumulation_steps": 6, "synchronize_gradients": "last"},
    {"strategy": "hsdp", "parameter_dtype": "bf16", "gradient_accumulation_steps": 4},
    {"strategy": "hsdp", "gradient_accumulation_steps": 4, "all_reduce": "last"},
    {"strategy": "ddp"},
    {"strategy": "ddp", "gradient_accumulation_steps": 5, "synchronize_gradients": "last"},
    {"strategy": "zero1"},
    {"strategy": "zero2", "activation_checkpointing": "every-2"},
    {"strategy": "zero3", "loss": "chunked"},
    {"strategy": "fsdp1"},
    {"strategy": "none", "gpus": 1},
)
EVERY = pytest.mark.parametrize(
    "case", range(len(CASES)), ids=[" ".join(map(str, case.values())) for case in CASES]
)


def _keys(case: int, model: str = "1b") -> dict[str, Any]:
    return {"model": model, "gpus": 16, "link": "ib"} | CASES[case]


@cache
def _told(case: int) -> Explanation:
    return explain(**_keys(case))


def _script(case: int, model: str = "1b") -> Script:
    question = resolve(load_spec(**_keys(case, model)))
    return script(plan_for(question, question.strategies[0], {}))


def _told_out(items: tuple[Item, ...]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, Event):
            yield item
        else:
            for _ in range(item.times):
                yield from _told_out(item.items)


def _terms(terms: tuple[Term, ...]) -> dict[str, float]:
    return {term.name: term.value for term in terms}


@pytest.fixture(scope="module")
def told() -> Explanation:
    return explain(model="70b", gpus=64, link="ib", strategy="fsdp2")


@EVERY
def test_live_storages_sum_to_the_peak_in_every_category(case: int) -> None:
    told = _told(case)
    memory = told.estimate.memory
    live: Counter[str] = Counter()
    for buffer in told.buffers:
        live[buffer.category] += buffer.bytes
    assert sum(live.values()) == memory.peak_tensor_bytes == told.peak.tensor_bytes
    for category, size in live.items():
        assert size == getattr(memory.peak_breakdown_bytes, category)
    assert told.peak.name == memory.peak_moment


@EVERY
def test_the_peak_is_the_highest_of_a_walk_through_every_event(case: int) -> None:
    step = _script(case)
    total = high = sum(change.bytes for change in step.resident)
    for event in _told_out(step.items):
        for change in event.changes:
            total += change.bytes
            high = max(high, total)
    assert _told(case).peak.tensor_bytes == high


@pytest.mark.parametrize(
    "case", [i for i, case in enumerate(CASES) if case["strategy"] in ("fsdp2", "hsdp", "ddp")]
)
def test_what_a_framework_allocates_it_frees_under_the_same_owner(case: int) -> None:
    step = _script(case, model="8b")  # not tied: a tied gradient is born in the head
    frameworks = ("all_gather_buffers", "reduce_scatter_buffers", "gradients")
    live: Counter[tuple[str, str]] = Counter()
    for change in step.resident:
        live[change.category, change.owner] += change.bytes
    start = live.copy()
    for event in _told_out(step.items):
        for change in event.changes:
            owner = change.category, change.owner
            live[owner] += change.bytes
            assert change.category not in frameworks or live[owner] >= 0
    for held, size in live.items():
        assert held[0] not in frameworks or size == start[held]


def test_storages_say_how_many_they_are_and_in_which_blocks_they_were_made() -> None:
    told = explain(model="8b", gpus=8, strategy="fsdp2", activation_checkpointing="none")
    saved = next(buffer for buffer in told.buffers if buffer.owner == "gate_proj")
    assert (saved.count, saved.blocks) == (32, "0-31")
    assert saved.bytes == 32 * 4096 * 14_336 * 2


def test_the_next_moments_are_of_other_kinds_and_lower(told: Explanation) -> None:
    moments = (told.peak, *told.next_moments)
    assert len(told.next_moments) == 3
    assert len({(each.phase, each.event) for each in moments}) == len(moments)
    for higher, lower in zip(moments, told.next_moments, strict=False):
        assert higher.tensor_bytes >= lower.tensor_bytes
        assert lower.below_peak_bytes == told.peak.tensor_bytes - lower.tensor_bytes


def test_states_show_their_formula(told: Explanation) -> None:
    terms = {term.name: term for term in told.memory_terms}
    assert terms["parameters"].formula == f"{LLAMA_70B:,} x 4 B / 64 ranks"
    assert terms["parameters"].value == LLAMA_70B * 4 / 64
    assert terms["optimizer states"].value == LLAMA_70B * 8 / 64


def test_padding_is_a_term_of_its_own() -> None:
    told = explain(model="gpt2", gpus=7, gpus_per_node=7, strategy="fsdp2")
    terms = {term.name: term for term in told.memory_terms}
    assert terms["parameters"].formula.endswith("padding")
    assert terms["parameters"].value > 124_439_808 * 4 / 7


@EVERY
def test_memory_terms_add_up_to_the_device(case: int) -> None:
    told = _told(case)
    terms = _terms(told.memory_terms)
    above = ("cuBLAS workspaces", "pools beyond the peak", "fragmentation", "CUDA context", "NCCL")
    together = told.peak.tensor_bytes + sum(terms.get(name, 0) for name in above)
    if "pools beyond the peak" not in terms:  # one pool, rounded up to its segments
        assert together == pytest.approx(terms["device memory"], abs=2 * 2**20)
    else:
        assert together == pytest.approx(terms["device memory"], abs=2)
    assert terms["device memory"] == told.estimate.memory.device_bytes


@EVERY
def test_kernels_copies_optimizer_and_waiting_add_up_to_the_step(case: int) -> None:
    told = _told(case)
    terms, time = _terms(told.time_terms), told.estimate.time
    kernels = ("matmuls", "attention", "memory-bound kernels", "copies in and out", "optimizer")
    compute = sum(terms.get(name, 0.0) for name in (*kernels, "launches and contention"))
    assert compute == pytest.approx(time.compute_seconds, rel=1e-9)
    assert compute + terms["waiting"] == pytest.approx(time.step_seconds, rel=1e-9)


def test_a_remedy_is_what_an_estimate_with_its_keys_says() -> None:
    asked: dict[str, Any] = {"model": "8b", "gpus": 8, "strategy": "fsdp2"}
    told = explain(**asked, activation_checkpointing="none")
    best = told.remedies[0]
    changed = estimate(**asked, activation_checkpointing="full").estimates[0]
    assert best.change == "activation_checkpointing full"
    assert best.peak_allocated_bytes == changed.memory.peak_allocated_bytes
    assert best.step_seconds == changed.time.step_seconds
    assert best.extra_seconds == pytest.approx(
        best.extra_compute_seconds + best.extra_exposed_seconds
    )


@EVERY
def test_remedies_lower_the_peak_best_first(case: int) -> None:
    told = _told(case)
    saved = [each.saved_bytes for each in told.remedies]
    assert saved == sorted(saved, reverse=True)
    for each in told.remedies:
        assert each.saved_bytes > 0
        peak = told.estimate.memory.peak_allocated_bytes
        assert each.peak_allocated_bytes == peak - each.saved_bytes


@pytest.mark.parametrize(("where", "off"), [("none", ""), ("cpu", " and what is off the GPU")])
def test_the_step_says_which_terms_are_not_in_its_sum(where: str, off: str) -> None:
    told = explain(model="1b", gpus=8, strategy="zero3", offload_optimizer=where)
    assert told.time_terms[-1].name == "step"
    assert told.time_terms[-1].formula == f"all of these but the collectives{off}"


def test_a_remedy_that_sends_many_times_as_much_says_so() -> None:
    asked: dict[str, Any] = {"model": "8b", "gpus": 8, "lora_rank": 16}
    told = explain(**asked, strategy="zero1")
    (price,) = [each.why for each in told.remedies if each.change == "strategy zero3"]
    before, after = (
        estimate(**asked, strategy=name).estimates[0].communication.wire_bytes
        for name in ("zero1", "zero3")
    )
    assert f"sends {after / before:,.0f} times as much" in price


def test_nothing_is_advised_that_the_run_does_already() -> None:
    told = explain(model="8b", gpus=8, strategy="fsdp2", loss="chunked", reduce_dtype="bf16")
    changes = {each.change for each in told.remedies}
    assert not changes & {"loss chunked", "reduce_dtype bf16", "activation_checkpointing selective"}


def test_half_the_micro_batch_doubles_the_accumulation() -> None:
    told = explain(model="8b", gpus=8, strategy="fsdp2", micro_batch_size=8)
    changes = [each.change for each in told.remedies]
    assert "micro_batch_size 4, gradient_accumulation_steps 2" in changes


@pytest.mark.parametrize("strategy", ["zero2", "zero3"])
def test_deepspeeds_estimator_is_led_to_the_peak(strategy: str) -> None:
    """2 P or 4 bytes of the largest layer, and 18 P / N (DeepSpeed 0.19.8, both estimators)."""
    told = explain(model="7b", gpus=8, strategy=strategy)
    assert told.accounting is not None
    largest = 32_000 * 4096
    whole = 2 * LLAMA_2_7B if strategy == "zero2" else 4 * largest
    rows = told.accounting.rows
    assert sum(row.counted_bytes for row in rows) == whole + 18 * LLAMA_2_7B // 8
    assert sum(row.live_bytes for row in rows) == told.estimate.memory.peak_allocated_bytes
    states = ("parameters", "gradients", "unsharded", "optimizer")
    for buffer in told.buffers:
        if buffer.category.startswith(states):
            assert any(f"{buffer.owner} " in row.why for row in rows)


def test_a_figure_at_the_end_of_its_band_gives_the_step_that_a_profile_with_it_gives(
    told: Explanation, tmp_path: Path
) -> None:
    row = next(each for each in told.sensitivities if each.name == "GPU: matmul efficiency")
    shipped = Path(__file__).parents[2] / "hardware_profiles" / FOLDERS[Gpu] / "h100-sxm5-80gb.toml"
    text = shipped.read_text(encoding="utf-8")
    low = row.value * (1 - row.rel_uncertainty)
    before = f"[matmul_efficiency]\nvalue = {row.value}"
    assert before in text
    own = tmp_path / FOLDERS[Gpu] / shipped.name
    own.parent.mkdir()
    own.write_text(text.replace(before, f"[matmul_efficiency]\nvalue = {low!r}"), encoding="utf-8")
    slower = estimate(
        profiles=tmp_path, model="70b", gpus=64, link="ib", strategy="fsdp2"
    ).estimates[0]
    now = told.estimate.time.step_seconds
    assert slower.time.step_seconds is not None
    assert now is not None
    assert row.step_seconds[0] == pytest.approx(slower.time.step_seconds - now)
    assert row.step_seconds[0] > 0 > row.step_seconds[1]


def test_the_assumption_that_matters_most_comes_first(told: Explanation) -> None:
    usable, step = told.estimate.memory.usable_bytes, told.estimate.time.step_seconds
    assert usable is not None
    assert step is not None
    weights = [
        max(
            *(abs(s) / step for s in row.step_seconds), *(abs(b) / usable for b in row.device_bytes)
        )
        for row in told.sensitivities
    ]
    assert weights == sorted(weights, reverse=True)
    assert 0 < len(weights) <= 8


def test_one_gpu_has_no_communicator_to_be_uncertain_about() -> None:
    told = explain(model="1b", gpus=1, strategy="none")
    assert all("NCCL" not in row.name for row in told.sensitivities)
    assert "NCCL" not in _terms(told.memory_terms)


def test_without_a_strategy_the_fastest_that_fits_is_explained() -> None:
    told = explain(model="8b", gpus=8)
    answer = estimate(model="8b", gpus=8)
    assert answer.fastest is not None
    assert told.estimate == answer.fastest
    assert told.chosen == "the fastest strategy that fits"
    assert told.inputs.sharding.strategy == answer.fastest.strategy


def test_where_nothing_fits_the_smallest_peak_is_explained() -> None:
    asked: dict[str, Any] = {"model": "8b", "gpus": 2, "gpu": "l4"}
    told = explain(**asked)
    peaks = [each.memory.peak_allocated_bytes for each in estimate(**asked).estimates]
    assert told.estimate.memory.peak_allocated_bytes == min(peaks)
    assert told.chosen.startswith("nothing fits")


def test_the_json_is_stable_and_whole(told: Explanation) -> None:
    document = json.loads(told.to_json())
    assert document["schema_version"] == 1
    assert document["inputs"]["sharding"]["strategy"] == "fsdp2"
    assert document["peak"]["name"] == told.estimate.memory.peak_moment
    assert document["remedies"][0]["change"] == told.remedies[0].change
    again = explain(model="70b", gpus=64, link="ib", strategy="fsdp2")
    assert again.to_json() == told.to_json()


def test_a_notebook_shows_every_table(told: Explanation) -> None:
    page = told._repr_html_()
    for title in ("Live at the peak", "next moments", "lower the peak", "bytes", "seconds", "most"):
        assert title in page
