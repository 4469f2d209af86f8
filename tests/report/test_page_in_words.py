"""What the page says in words: of slower links, of how sure it is, of what is tight."""

import re
from html import unescape
from typing import Any, Final

import pytest

from zeroplan import estimate
from zeroplan.estimation.record import Estimate
from zeroplan.hardware import load_catalogue
from zeroplan.memory.device import COMMUNICATOR_BYTES, device_memory, verdict_on
from zeroplan.records import replace
from zeroplan.report.page.document import page_html
from zeroplan.report.page.fit import beyond, chosen
from zeroplan.report.page.grid import Grid, grid
from zeroplan.report.page.short import beside
from zeroplan.rows import significant
from zeroplan.schedule.events import Pool
from zeroplan.spec.toml import by_dotted_key, load_spec
from zeroplan.units import GIB, MIB

KEYS: Final[dict[str, Any]] = {"model": "8b", "gpus": 16, "link": "ib"}
VARIED: Final[dict[str, list[object]]] = {
    "cluster.gpus": [16, 64],
    "cluster.link": ["ib", "ethernet-10g"],
    "training.micro_batch_size": [1, 4],
    "training.sequence_length": [4096],
}


@pytest.fixture(scope="module")
def answer() -> Estimate:
    return estimate(**KEYS)


def _section(page: str, title: str) -> str:
    """Return a part of the page."""
    return unescape(page.partition(f">{title}</h2>")[2].partition("</section>")[0])


def test_a_slower_link_comes_with_its_band_wherever_it_is_told(page: str) -> None:
    slow = estimate(**KEYS | {"link": "ethernet-10g"}, strategy="zero3").estimates[0].time
    low, high = (significant(end or 0, 2) for end in (slow.low_seconds, slow.high_seconds))
    verdict, link = (_section(page, name) for name in ("Verdict", "Link"))
    assert f"{low} to {high} s in eight cases of ten" in verdict
    assert f"{low} to {high} s in eight cases of ten" in link
    assert f"<td>{low}-{high}</td>" in link


def test_the_parts_of_a_device_are_those_that_the_memory_model_adds_up() -> None:
    gpu = load_catalogue().gpu("h100-sxm5-80gb")
    pools: dict[Pool, int] = {"compute": 30 * GIB, "all-gather": 5 * GIB + 7}
    made = device_memory(28 * GIB, pools, gpu, 3)
    parts = beyond(made.allocated_bytes, made.reserved_bytes, made.device_bytes, gpu)
    assert parts.half_band_bytes == pytest.approx(made.half_band_bytes, abs=4)
    assert parts.pools_bytes == pytest.approx(7 * GIB, abs=4 * MIB)
    assert parts.nccl_bytes == pytest.approx(3 * COMMUNICATOR_BYTES.value, abs=4)
    sizes = (parts.pools_bytes, parts.kept_bytes, parts.context_bytes, parts.nccl_bytes)
    assert made.allocated_bytes + sum(sizes) == pytest.approx(made.device_bytes, abs=4)


def test_every_verdict_follows_from_the_margin_that_the_page_shows(around: Grid) -> None:
    figures = around.figures
    for place, verdict in enumerate(around.verdicts):
        device, margin = (figures[name][place] for name in ("device_bytes", "half_band_bytes"))
        if device is not None:
            assert verdict_on(device, margin, around.usable_bytes) == verdict


def test_the_page_leads_from_tensors_to_the_device_and_its_margin(
    page: str, answer: Estimate
) -> None:
    rows = re.findall(r'<th scope="row">(\w+)</th>(.*?)</tr>', _section(page, "How sure"))
    assert [name for name, _ in rows] == [each.strategy for each in answer.estimates if each.fits]
    for each, (_, cells) in zip(
        (each for each in answer.estimates if each.fits), rows, strict=True
    ):
        *parts, device, margin, words = re.findall("<td.*?>(.*?)</td>", cells)
        assert sum(map(float, parts)) == pytest.approx(float(device), rel=0.01)
        assert device == significant((each.memory.device_bytes or 0) / GIB)
        assert float(margin.removeprefix("+/-")) > 0
        assert words.startswith(each.verdict.replace("_", " "))


def test_a_tight_plan_above_the_limit_is_not_the_fastest_that_fits(
    answer: Estimate, around: Grid
) -> None:
    zero3, fsdp2 = (
        next(each for each in answer.estimates if each.strategy == name)
        for name in ("zero3", "fsdp2")
    )
    memory = replace(zero3.memory, headroom_bytes=-GIB)
    above = replace(zero3, verdict="tight", memory=memory)
    changed = replace(answer, estimates=(above, fsdp2))
    assert changed.fastest == above
    verdict = _section(page_html(changed, load_spec(**KEYS), around, []), "Verdict")
    assert "Fastest, but above the limit: zero3 (tight)" in verdict
    assert "Fastest that fits: fsdp2" in verdict
    assert chosen(changed) == fsdp2


def test_strategies_within_the_band_of_one_another_are_called_equal(answer: Estimate) -> None:
    zero3, fsdp2 = (
        next(each for each in answer.estimates if each.strategy == name)
        for name in ("zero3", "fsdp2")
    )
    equal, batch = beside(replace(answer, estimates=(zero3, fsdp2)))
    step = significant(fsdp2.time.step_seconds or 0)
    assert equal.startswith(f"zero3 is about equal to fsdp2 ({step} s)")
    assert batch == ("A step of all GPUs together takes in 65,536 tokens: 16 GPUs x 1 x 4,096.")
    far = replace(fsdp2.time, step_seconds=99.0, low_seconds=90.0, high_seconds=110.0)
    assert list(beside(replace(answer, estimates=(zero3, replace(fsdp2, time=far))))) == [batch]


def test_a_link_that_no_machine_has_between_nodes_says_so(answer: Estimate) -> None:
    varied: dict[str, list[object]] = {**VARIED, "cluster.link": ["ib", "nvlink"]}
    found = grid(answer, by_dotted_key(KEYS), varied)
    assert found.names["nvlink4"].endswith(", hypothetical from 16 GPUs")
    assert "hypothetical" not in found.names["ib-ndr400"]


def test_in_one_node_no_link_is_compared() -> None:
    keys: dict[str, Any] = {"model": "llama-3.2-1b", "gpus": 8, "strategy": "fsdp2"}
    varied: dict[str, list[object]] = {"training.micro_batch_size": [1]}
    told = estimate(**keys)
    page = page_html(told, load_spec(**keys), grid(told, by_dotted_key(keys), varied), [])
    assert "All GPUs are in one node" in _section(page, "Link")
    assert "All GPUs are in one node" in _section(page, "Verdict")
    assert "<svg" not in _section(page, "Link")


def test_states_of_the_optimizer_have_one_name_and_pointers_lead_somewhere(page: str) -> None:
    assert "Adam states" not in page
    assert ">optimizer states<" in _section(page, "Memory")
    assert "the note says" not in page
    assert "zeroplan hardware show h100-sxm5-80gb" in page
