"""Charts of real answers: the finding is right, the numbers are the estimate's, texts stand apart."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from zeroplan import estimate, load_spec, plan
from zeroplan.estimation.choice import choose
from zeroplan.estimation.explain_case import Case, case_of
from zeroplan.estimation.resolve import resolve
from zeroplan.estimation.tables import memory_table
from zeroplan.estimation.why_slow import why_slow
from zeroplan.hardware import load_catalogue
from zeroplan.records import replace
from zeroplan.report.charts import (
    breakdown,
    collective,
    fit,
    links,
    memory,
    memory_timeline,
    pareto,
    scaling,
    timeline,
)
from zeroplan.report.charts.picture import Chart, Kind, save
from zeroplan.report.charts.picture import figure_of as drawn
from zeroplan.rows import csv_text, significant
from zeroplan.search.select import rent
from zeroplan.sharding.groups import contiguous
from zeroplan.units import GIB

Faults = Callable[[Kind, Chart], list[str]]

ASKED: Any = {"model": "llama-3.1-8b", "gpus": 16, "link": "ib"}
VALUES = {"model.source": "llama-3.1-8b", "cluster.gpus": 16, "cluster.link": "ib"}
SWEEPS = Path(__file__).parents[2] / "comm" / "sweeps.csv"


@cache
def _case(strategy: str, micro_steps: int = 1) -> Case:
    run = load_spec(**ASKED, strategy=strategy, gradient_accumulation_steps=micro_steps)
    chosen = choose(resolve(run))
    return case_of(chosen.question, chosen.estimate, None)


def _plans() -> Any:
    return plan(
        model="llama-3.1-8b",
        gpus=[8, 16, 32],
        strategy=["zero2", "fsdp2"],
        micro_batch_size=[1, 4],
        activation_checkpointing="full",
    )


def _sixteen() -> collective.CollectiveChart:
    group = contiguous("world", 16, 8)
    return collective.data_collective(resolve(load_spec(**ASKED)).wires, group, "16 GPUs")


CHARTS: dict[str, tuple[Kind, Callable[[], Any]]] = {
    "memory": (memory.KIND, lambda: memory.data_memory(estimate(**ASKED))),
    "scaling": (
        scaling.KIND,
        lambda: scaling.data_scaling({**VALUES, "cluster.gpus": [8, 16, 64, 1024]}),
    ),
    "links": (links.KIND, lambda: links.data_links(VALUES)),
    "timeline": (timeline.KIND, lambda: timeline.data_timeline(_case("fsdp2"))),
    "memory-timeline": (
        memory_timeline.KIND,
        lambda: memory_timeline.data_memory_timeline(_case("fsdp2")),
    ),
    "fit": (fit.KIND, lambda: fit.data_fit({**VALUES, "sharding.strategy": "fsdp2"})),
    "breakdown": (breakdown.KIND, lambda: breakdown.data_breakdown(estimate(**ASKED))),
    "pareto": (pareto.KIND, lambda: pareto.data_pareto(_plans(), "llama-3.1-8b")),
    "collective": (collective.KIND, _sixteen),
    "measured": (
        collective.KIND,
        lambda: collective.data_measured(SWEEPS, load_catalogue()),
    ),
}


@cache
def _chart(name: str) -> tuple[Kind, Any]:
    """Return a kind with its data, made once."""
    kind, made = CHARTS[name]
    return kind, made()


@pytest.mark.parametrize("name", CHARTS)
def test_texts_neither_overlap_nor_leave_the_page(name: str, faults: Faults) -> None:
    assert faults(*_chart(name)) == []


@pytest.mark.parametrize("name", CHARTS)
def test_title_alt_and_numbers_say_something(name: str) -> None:
    _, data = _chart(name)
    assert len(data.title) > 20
    assert len(data.alt) > len(data.title)
    head, *lines = csv_text(data.rows()).splitlines()
    assert len(lines) == len(data.rows()) >= 1
    assert all(line.count(",") >= head.count(",") for line in lines)


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_files_are_the_same_from_one_run_to_the_next(suffix: str, tmp_path: Path) -> None:
    kind, data = _chart("links")
    for name in ("one", "two"):
        save(drawn(kind, data), tmp_path / name, suffix, data.title, data.alt)
    written = (tmp_path / "one").read_bytes()
    assert written == (tmp_path / "two").read_bytes()
    assert len(written) > 5_000


def test_an_svg_has_its_title_and_its_description(tmp_path: Path) -> None:
    kind, data = _chart("memory")
    save(drawn(kind, data), tmp_path / "x", ".svg", data.title, data.alt)
    text = (tmp_path / "x").read_text()
    assert f"<title>{data.title}</title>" in text
    assert f"<desc>{data.alt}</desc>" in text
    assert '<svg role="img" ' in text


def test_memory_is_that_of_the_estimate() -> None:
    _, data = _chart("memory")
    answer = estimate(**ASKED)
    assert [bar.device_bytes for bar in data.bars] == [
        each.memory.device_bytes for each in answer.estimates
    ]
    for bar, each in zip(data.bars, answer.estimates, strict=True):
        assert sum(bar.parts.values()) == each.memory.device_bytes
        beyond = (each.memory.device_bytes or 0) - each.memory.peak_allocated_bytes
        assert bar.parts["allocator, NCCL, CUDA"] == beyond


def test_memory_prints_the_names_and_the_digits_of_the_table() -> None:
    kind, data = _chart("memory")
    table = memory_table(estimate(**ASKED))
    column = [each.name for each in table.columns].index("buffers")
    sizes = [bar.parts["buffers"] / GIB for bar in data.bars]
    assert sizes == pytest.approx([row[column] for row in table.rows])
    printed = [text.get_text() for text in drawn(kind, data).axes[0].texts]
    widest = significant(max(sizes))
    assert len(widest.replace(".", "")) == 3
    assert widest in printed


def test_the_title_of_memory_names_the_least_and_counts_what_fits() -> None:
    _, data = _chart("memory")
    estimates = estimate(**ASKED).estimates
    fitting = sum(each.verdict != "does_not_fit" for each in estimates)
    least = min(estimates, key=lambda each: each.memory.device_bytes or 0).strategy
    assert data.title.startswith(f"{fitting} of {len(estimates)} fit in ")
    assert f"; {least} needs " in data.title


def test_scaling_is_what_single_estimates_say_and_no_gpus_go_below_the_floor() -> None:
    _, data = _chart("scaling")
    line = next(line for line in data.lines if line.strategy == "fsdp2")
    for gpus, size, seconds in zip(line.gpus, line.device_bytes, line.step_seconds, strict=True):
        (one,) = estimate(**{**ASKED, "gpus": gpus}, strategy="fsdp2").estimates
        assert (size, seconds) == (one.memory.device_bytes, pytest.approx(one.time.step_seconds))
    (most,) = estimate(**{**ASKED, "gpus": 4096}, strategy="zero3").estimates
    floor = next(line for line in data.lines if line.strategy == "zero3").floor_bytes
    assert floor <= (most.memory.device_bytes or 0) <= 1.02 * floor
    assert data.title.startswith("No number of GPUs brings zero3 below ")


def test_the_floor_follows_the_share_of_each_gpu() -> None:
    line = scaling.Line(
        strategy="fsdp2",
        gpus=(8, 64, 256),
        device_bytes=(10 * GIB + 256, 10 * GIB + 32, 10 * GIB + 8),
        step_seconds=(1.0, 1.0, 1.0),
    )
    assert line.floor_bytes == 10 * GIB


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.946, 0.949), "all 95 %"),
        ((0.9449, 0.9451), "all 94 % or more"),
        ((0.3, 0.3), "all 30 %"),
    ],
)
def test_shares_that_are_alike_are_named_once_and_not_too_high(
    shares: tuple[float, ...], told: str
) -> None:
    _, data = _chart("links")
    first, *_ = data.found
    found = tuple(
        replace(first, strategy=strategy, waiting=share)
        for strategy, share in zip(("zero3", "fsdp2"), shares, strict=True)
    )
    alike = replace(data, links=(first.link,), found=found)
    _, below = drawn(links.KIND, alike).axes
    assert told in [text.get_text() for text in below.texts]


def test_links_say_how_much_of_the_step_is_waiting() -> None:
    _, data = _chart("links")
    one = next(e for e in data.found if (e.strategy, e.link) == ("zero3", "ethernet-10g"))
    (alone,) = estimate(**{**ASKED, "link": "ethernet-10g"}, strategy="zero3").estimates
    assert one.step_seconds == pytest.approx(alone.time.step_seconds)
    waits = (alone.time.exposed_communication_seconds or 0) / (alone.time.step_seconds or 1)
    assert one.waiting == pytest.approx(waits)
    last = [each for each in data.found if each.link == "ethernet-1g"]
    fastest = min(last, key=lambda each: each.step_seconds)
    assert f"the fastest, {fastest.strategy}, takes " in data.title
    assert data.links[0].startswith("nvlink")
    assert {each.link for each in data.found if each.hypothetical} == {data.links[0]}


def test_the_timeline_computes_what_the_estimate_says() -> None:
    _, data = _chart("timeline")
    time = estimate(**ASKED, strategy="fsdp2").estimates[0].time
    assert data.step_seconds == pytest.approx(time.step_seconds)
    gaps = sum(w.end_seconds - w.start_seconds for w in data.works if w.doing == "gap")
    assert data.computing_seconds + gaps == pytest.approx(data.step_seconds)
    waits = time.exposed_communication_seconds or 0
    assert gaps >= waits * (1 - 1e-9)


def test_collectives_on_the_compute_stream_are_no_computing() -> None:
    data = timeline.data_timeline(_case("zero2"))
    assert data.streams == ("compute",)
    time = estimate(**ASKED, strategy="zero2").estimates[0].time
    step, sent = time.step_seconds or 0, time.communication_seconds or 0
    assert sent > 0.05 * step
    assert data.computing_seconds <= step - sent
    assert data.computing_seconds > 0.9 * (step - sent)  # buckets are copied, too


def test_the_memory_timeline_peaks_where_the_estimate_does() -> None:
    _, data = _chart("memory-timeline")
    (found,) = estimate(**ASKED, strategy="fsdp2").estimates
    assert data.peak_bytes == found.memory.peak_tensor_bytes
    assert data.moment == found.memory.peak_moment
    assert f"in {found.memory.peak_moment}; " in data.title
    first, last = data.lives[0], data.lives[-1]
    states = ("parameters", "optimizer")
    assert {s: first.bytes[s] for s in states} == {s: last.after[s] for s in states}


def test_fit_says_what_single_estimates_say() -> None:
    _, data = _chart("fit")
    point = next(p for p in data.points if (p.micro_batch_size, p.sequence_length) == (4, 8192))
    keys: Any = {"micro_batch_size": 4, "sequence_length": 8192, "strategy": "fsdp2"}
    (alone,) = estimate(**ASKED, **keys).estimates
    assert (point.device_bytes, point.verdict) == (alone.memory.device_bytes, alone.verdict)
    assert point.tokens_per_second_per_gpu == pytest.approx(alone.time.tokens_per_second_per_gpu)
    assert data.best.verdict != "does_not_fit"
    assert f"{data.best.micro_batch_size} x {data.best.sequence_length:,}" in data.title


def test_breakdown_is_what_why_slow_says() -> None:
    _, data = _chart("breakdown")
    spent = next(spent for spent in data.steps if spent.name == "hsdp")
    assert spent.parts == why_slow(**ASKED, strategy="hsdp").parts
    assert sum(part.seconds for part in spent.parts) == pytest.approx(spent.step_seconds)
    assert data.title.startswith(min(data.steps, key=lambda s: s.step_seconds).name)


def test_pareto_rises_with_the_cost() -> None:
    _, data = _chart("pareto")
    costs = [rent(choice) for choice in data.frontier]
    rates = [choice.tokens_per_second for choice in data.frontier]
    assert costs == sorted(set(costs))
    assert rates == sorted(set(rates))
    assert data.title.startswith("4.00 times the GPUs buy ")


def test_plans_of_one_price_are_one_step_of_the_frontier() -> None:
    found = plan(
        model="llama-3.1-8b",
        gpus=[8, 16],
        strategy=["zero2", "zero3"],
        micro_batch_size=[1, 2, 4],
        activation_checkpointing=["none", "full"],
        prices={"": 2.7},
    )
    data = pareto.data_pareto(found, "llama-3.1-8b")
    costs = [rent(choice) for choice in data.frontier]
    assert costs == pytest.approx([2.7 * 8, 2.7 * 16])
    best = max(found.best, key=lambda choice: choice.tokens_per_second)
    assert data.frontier[-1].tokens_per_second == best.tokens_per_second


def test_a_frontier_of_real_links_has_no_hypothetical_plans_beside_it() -> None:
    """They are no dearer and faster: points above the line that nobody can buy."""
    keys: dict[str, Any] = {"model": "8b", "gpus": 64, "strategy": "fsdp2", "micro_batch_size": 1}
    data = pareto.data_pareto(plan(link=["nvlink", "ib"], **keys), "8b")
    assert {each.keys["cluster.link"] for each in (*data.frontier, *data.others)} == {"ib"}
    unreal = pareto.data_pareto(plan(link="nvlink", **keys), "8b")
    assert unreal.title.startswith("1 x 4,096 (hypothetical) on 64 GPUs is the best")


def test_measured_points_lie_where_the_table_says() -> None:
    _, data = _chart("measured")
    row = next(row for row in data.rows() if row["kind"] == "measured")
    assert (row["collective"], row["gpus"], row["message_bytes"]) == ("all_gather", 2, 65536)
    assert row["bus_bytes_per_second"] == pytest.approx(65536 / 2 / 6.37e-6)


def test_a_curve_keeps_below_what_the_links_carry() -> None:
    _, data = _chart("collective")
    for curve in data.curves[:2]:
        assert max(curve.predicted) <= curve.limit
        assert max(curve.predicted) > 0.9 * curve.limit
