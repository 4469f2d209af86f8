"""The page is one file that anyone can read, and says what the library says."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any, Final

import pytest

from zeroplan import estimate
from zeroplan.errors import SpecError
from zeroplan.estimation.budget import with_budget
from zeroplan.estimation.record import Estimate
from zeroplan.records import replace
from zeroplan.report.page.charts import Bar, Part, chart, memory_bars, time_bars
from zeroplan.report.page.document import DATA, page_html
from zeroplan.report.page.grid import AXES, Grid, grid
from zeroplan.rows import significant
from zeroplan.spec.toml import by_dotted_key, load_spec
from zeroplan.units import GIB

KEYS: Final[dict[str, Any]] = {"model": "8b", "gpus": 16, "link": "ib"}
VARIED: Final[dict[str, list[object]]] = {
    "cluster.gpus": [16, 8, 32],
    "cluster.link": ["ib", "ethernet-10g"],
    "training.micro_batch_size": [1, 4],
    "training.sequence_length": [4096, 8192],
}
VOID: Final = {"meta", "input", "link", "br", "img", "hr"}


@pytest.fixture(scope="module")
def answer() -> Estimate:
    return estimate(**KEYS)


class _Outline(HTMLParser):
    """Elements with their attributes, and what is open where."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, ...]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside.append(tuple(self.open))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]


@pytest.fixture(scope="module")
def outline(page: str) -> _Outline:
    return _Outline(page)


def test_every_element_is_closed_where_it_was_opened(outline: _Outline) -> None:
    assert outline.open == []


def test_commands_are_code_and_no_backtick_is_shown(page: str) -> None:
    body = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "<code>zeroplan explain</code>" in body
    assert "`" not in body


def test_nothing_is_loaded_from_anywhere(page: str, outline: _Outline) -> None:
    assert [tag for tag, _ in outline.found if tag in ("link", "img", "iframe", "base")] == []
    assert [each for _, each in outline.found if "src" in each] == []
    assert "url(" not in page
    assert "@import" not in page
    policy = [each["content"] or "" for each in outline.all("meta") if "http-equiv" in each]
    assert policy[0].startswith("default-src 'none'")


def test_landmarks_language_and_headings_lead_a_screen_reader(outline: _Outline) -> None:
    assert outline.all("html") == [{"lang": "en"}]
    assert all(len(outline.all(mark)) == 1 for mark in ("header", "nav", "main", "footer", "h1"))
    levels = [int(tag[1]) for tag, _ in outline.found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_table_has_a_caption_and_scoped_heads(outline: _Outline) -> None:
    tables = len(outline.all("table"))
    assert tables > 4
    assert len(outline.all("caption")) == tables
    assert all(each.get("scope") in ("row", "col") for each in outline.all("th"))


def test_every_chart_is_told_in_words(outline: _Outline) -> None:
    charts = outline.all("svg")
    assert len(charts) == 5
    assert all(each["role"] == "img" and len(each["aria-label"] or "") > 30 for each in charts)


def test_ids_are_unique_and_every_reference_leads_to_one(outline: _Outline) -> None:
    ids = [each["id"] for _, each in outline.found if "id" in each]
    assert len(ids) == len(set(ids))
    references = [
        (each["href"] or "")[1:] for each in outline.all("a") if (each["href"] or "")[0] == "#"
    ]
    labels = [each.get("for") for each in outline.all("label", "output")]
    named = [each.get("aria-labelledby") for each in outline.all("section")]
    assert len(labels) >= 8
    assert set(references + labels + named) <= set(ids)


def test_every_control_has_a_label(outline: _Outline) -> None:
    labelled = {each["for"] for each in outline.all("label")}
    assert {each["id"] for each in outline.all("input", "select")} == labelled
    assert len(labelled) == len(AXES) + len(("price", "tokens"))


def _luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out(scheme: int) -> None:
    """Text 4.5 to 1, marks of charts 3 to 1 or bounded by their neighbours (WCAG 2.2, 1.4.3)."""
    css = (DATA / "page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colour = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))

    def contrast(front: str, back: str) -> float:
        bright, dark = sorted((_luminance(colour[front]), _luminance(colour[back])), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    for back in ("page", "panel"):
        assert min(contrast(front, back) for front in ("text", "quiet", "link")) >= 4.5
    assert min(contrast(each, "page") for each in ("parameters", "optimizer", "activations")) >= 3


def test_the_embedded_grid_is_what_single_estimates_say(page: str) -> None:
    """Of every strategy, away from the question on every axis; read from the page as it is."""
    embedded = re.search(r'id="grid">(.*?)</script>', page, re.DOTALL)
    assert embedded
    told: dict[str, Any] = json.loads(embedded[1])
    values: dict[str, Any] = {"cluster.gpus": 32, "cluster.link": "ethernet-10g"}
    values |= {"training.micro_batch_size": 4, "training.sequence_length": 8192}
    one = {key.rpartition(".")[2]: value for key, value in values.items()}
    for each in estimate(model="8b", **one).estimates:
        place = 0
        for key, axis in told["axes"].items():
            place = place * len(axis) + axis.index(values.get(key, each.strategy))
        assert told["verdicts"][place] == each.verdict
        for name, column in told["figures"].items():
            if name == "half_band_bytes":
                continue
            there = getattr(each.memory if name.endswith("bytes") else each.time, name)
            assert column[place] == pytest.approx(there, rel=1e-8)
    assert told["usable_bytes"] == each.memory.usable_bytes


def test_what_cannot_be_is_empty_in_the_grid(around: Grid) -> None:
    """One node has nothing to replicate: hsdp is left out there."""
    at = [
        axis.index(value)
        for axis, value in zip(around.axes.values(), ("hsdp", 8, "ib-ndr400", 1, 4096), strict=True)
    ]
    place = around.place(at)
    assert around.verdicts[place] is None
    assert {column[place] for column in around.figures.values()} == {None}


def test_a_grid_offers_what_lies_around_the_question() -> None:
    found = grid(
        estimate(model="llama-2-7b", gpus=8), by_dotted_key({"model": "llama-2-7b", "gpus": 8}), {}
    )
    assert found.axes["cluster.gpus"] == (1, 2, 4, 8, 16, 32, 64)
    assert found.axes["training.sequence_length"] == (2048, 4096)  # Llama 2 ends at 4,096
    assert found.axes["cluster.link"][0] == "ib-ndr400"
    assert len(found.axes["cluster.link"]) > 4


def test_a_grid_that_is_too_large_is_refused(answer: Estimate) -> None:
    many: dict[str, list[object]] = {"cluster.gpus": [8 * n for n in range(1, 400)]}
    with pytest.raises(
        SpecError, match=r"too many for one page: name fewer values of cluster\.gpus"
    ):
        grid(answer, by_dotted_key(KEYS), many)


def test_bars_of_memory_add_up_to_the_device(answer: Estimate) -> None:
    for bar, each in zip(memory_bars(answer), answer.estimates, strict=True):
        assert sum(part.value for part in bar.parts) == each.memory.device_bytes


def test_a_step_is_computing_and_waiting_for_links_and_host() -> None:
    keys: dict[str, Any] = {"model": "llama-3.2-1b", "gpus": 8, "strategy": "zero3"}
    offloaded = estimate(**keys, offload_optimizer="cpu")
    (bar,), time = time_bars(offloaded), offloaded.estimates[0].time
    spent = {part.kind: part.value for part in bar.parts}
    assert spent["host"] == time.exposed_offload_seconds != 0
    assert sum(spent.values()) == pytest.approx(time.step_seconds)


def test_a_bar_beyond_the_scale_is_cut_and_says_so() -> None:
    long = Bar(name="a", note="", parts=tuple(Part(kind="rest", value=3.0, told="") for _ in "12"))
    drawn = chart([long], 4.0, "told")
    assert re.findall(r'<rect.*? x="([\d.]+)%".*? width="([\d.]+)%"', drawn) == [
        ("0.000", "75.000"),
        ("75.000", "25.000"),
    ]
    assert "»" in drawn
    assert "»" not in chart([long], 6.0, "told")


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("fits", "Yes: it fits on these 16 GPUs with ddp or fsdp2."),
        (
            "tight",
            "Perhaps: on these 16 GPUs the limit lies within the uncertainty of ddp or fsdp2.",
        ),
        ("does_not_fit", "No: llama-3.1-8b does not fit on these 16 GPUs."),
    ],
)
def test_the_verdict_is_as_sure_as_the_memory_is(
    answer: Estimate, around: Grid, verdict: Any, told: str
) -> None:
    some = [each for each in answer.estimates if each.strategy in ("ddp", "fsdp2")]
    judged = tuple(replace(each, verdict=verdict) for each in some)
    changed = replace(answer, estimates=judged)
    assert f">{told}</p>" in page_html(changed, load_spec(**KEYS), around, [])


def test_a_page_with_everything_around_a_question_is_below_2_mb() -> None:
    keys: dict[str, Any] = {"model": "llama-3.1-70b", "gpus": 64, "link": "ib"}
    answer = estimate(**keys)
    whole = page_html(answer, load_spec(**keys), grid(answer, by_dotted_key(keys), {}), [])
    assert 100_000 < len(whole.encode()) < 2_000_000


def test_the_same_question_gives_the_same_bytes(answer: Estimate, around: Grid, page: str) -> None:
    again = page_html(answer, load_spec(**KEYS), around, ["zeroplan estimate --model 8b"])
    assert again == page


def test_names_cannot_break_out_of_the_page(around: Grid) -> None:
    bar = Bar(name="<script>", note='"&', parts=(Part(kind="rest", value=1.0, told="</title>"),))
    drawn = chart([bar], 1.0, '"><script>')
    assert "<script>" not in drawn
    assert "</title>" in drawn.replace("&lt;/title&gt;", "")
    named = around.names | {"ib-ndr400": "</script>"}
    assert "</script>" not in replace(around, names=named).to_json()


def test_the_page_says_in_short_what_readers_ask(page: str, answer: Estimate) -> None:
    told = unescape(page.partition('<dl class="short">')[2].partition("</dl>")[0])
    zero3 = next(each for each in answer.estimates if each.strategy == "zero3")
    memory, time = zero3.memory, zero3.time
    needed, usable = (
        significant((size or 0) / GIB) for size in (memory.device_bytes, memory.usable_bytes)
    )
    assert f"zero3 takes {needed} of {usable} GiB at its peak ({memory.peak_moment}): " in told
    assert f"optimizer states {significant(memory.peak_breakdown_bytes.optimizer / GIB)}" in told
    slow = estimate(**KEYS | {"link": "ethernet-10g"}, strategy="zero3").estimates[0].time
    longer = significant((slow.step_seconds or 0) / (time.step_seconds or 1), 2)
    ends = (significant(end or 0, 2) for end in (slow.low_seconds, slow.high_seconds))
    assert f"a step takes about {longer} times as long with zero3" in told
    assert f"{' to '.join(ends)} s in eight cases of ten" in told
    assert f"between {significant(time.low_seconds or 0)} and " in told


def test_a_page_that_says_no_names_a_remedy() -> None:
    keys: dict[str, Any] = {"model": "70b", "gpus": 8, "strategy": "ddp", "sequence_length": 1024}
    told = estimate(**keys)
    around = grid(told, by_dotted_key(keys), {"training.micro_batch_size": [1]})
    assert "--make-it-fit" in page_html(told, load_spec(**keys), around, [])


def test_a_budget_fills_the_fields_that_ask_for_it(answer: Estimate, around: Grid) -> None:
    asked = with_budget(answer, 2 * 10**12, {"": 2.5}, None)
    fields = {
        each["id"]: each
        for each in _Outline(page_html(asked, load_spec(**KEYS), around, [])).all("input")
    }
    assert fields["give-price"]["value"] == "2.5"
    assert fields["give-tokens"]["value"] == "2000"
