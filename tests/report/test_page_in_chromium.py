"""In a browser the page works, without a network and without an error."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

from zeroplan import estimate
from zeroplan.estimation.budget import with_budget
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.hardware import load_catalogue
from zeroplan.report.page.document import page_html
from zeroplan.report.page.fit import beyond
from zeroplan.report.page.fit import chosen as fastest
from zeroplan.report.page.grid import grid
from zeroplan.rows import significant
from zeroplan.spec.toml import by_dotted_key, load_spec
from zeroplan.units import DAY, GIB, HOUR, MEGA

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: chromium)")

KEYS: Final[dict[str, Any]] = {"model": "8b", "gpus": 16, "link": "ib"}
VARIED: Final[dict[str, list[object]]] = {
    "cluster.gpus": [16, 8, 32],
    "cluster.link": ["ib", "ethernet-10g"],
    "training.micro_batch_size": [1, 4],
    "training.sequence_length": [4096, 8192],
}
TIGHT: Final[dict[str, Any]] = {"micro_batch_size": 4, "sequence_length": 8192}
MOVES: Final[list[dict[str, Any]]] = [
    {},
    {"gpus": 32, "link": "ethernet-10g"},
    {"gpus": 8, "micro_batch_size": 4, "sequence_length": 8192},
    {"gpus": 32, "micro_batch_size": 4, "link": "ethernet-10g", "strategy": "zero2"},
    {"gpus": 8, "sequence_length": 8192, "price": 2.5, "tokens": 2e12},
    {"gpus": 32, "price": 1.75},
    {"tokens": 3e11},
    {"strategy": "ddp", "price": 2.5, "tokens": 2e12},
    {"strategy": "zero3", "price": 2.5, "tokens": 2e12},
    {**TIGHT, "strategy": "zero1"},
    {**TIGHT, "strategy": "zero3", "price": 2.5, "tokens": 2e12},
]
GIVEN: Final = {"price": 1.0, "tokens": 1e9}
"""What the reader may give, and its unit."""

PHONE: Final = 390
"""Width of a phone's screen. [px]"""

PROBE: Final = Path(__file__).with_name("probe.html").read_text(encoding="utf-8")
"""Moves the controls and writes down what the page then shows."""


def _margin(each: StrategyEstimate) -> float:
    """Return half of the band of a device's memory. [B]"""
    memory, gpu = each.memory, load_catalogue().gpu("h100-sxm5-80gb")
    peak, reserved = memory.peak_allocated_bytes, memory.reserved_bytes or 0
    half_band: float = beyond(peak, reserved, memory.device_bytes or 0, gpu).half_band_bytes
    return half_band


def _chromium(page: Path, *options: str, fragment: str = "") -> tuple[str, str]:
    """Open a page headless; return the document as it then is, and what the console said."""
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        f"--user-data-dir={page.parent / 'profile'}",
        *options,
        f"{page.as_uri()}#{fragment}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.fixture(scope="module")
def html() -> str:
    answer = estimate(**KEYS)
    around = grid(answer, by_dotted_key(KEYS), VARIED)
    return page_html(answer, load_spec(**KEYS), around, ["zeroplan estimate --model 8b"])


@pytest.fixture(scope="module")
def probed(html: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    page = tmp_path_factory.mktemp("page") / "page.html"
    named = [{**move, "link": "ib-ndr400"} if move.get("link") == "ib" else move for move in MOVES]
    probe = (
        PROBE.replace("MOVES", json.dumps(named))
        .replace("WIDTH", str(PHONE))
        .replace("GIVEN", json.dumps(GIVEN))
    )
    page.write_text(html.replace("</body>", probe + "</body>"))
    document, console = _chromium(page, "--dump-dom")
    assert console == ""
    found = re.search(r'<pre id="probed">(.*?)</pre>', document, re.DOTALL)
    assert found, re.findall("<title>.*?</title>", document)
    told: dict[str, Any] = json.loads(unescape(found[1]))
    return told


def test_the_console_is_silent(html: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(html)
    document, console = _chromium(page, "--dump-dom")
    assert console == ""
    assert 'id="what-if-verdict" role="status">zero3 fits' in document


def test_a_fault_in_the_script_would_be_seen(html: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(html.replace("const show =", "absent();\n  const show ="))
    assert "absent is not defined" in _chromium(page, "--dump-dom")[1]


@pytest.mark.parametrize("place", range(len(MOVES)))
def test_controls_show_what_python_answers(probed: dict[str, Any], place: int) -> None:
    shown, move = probed["found"][place], MOVES[place]
    keys = {key: value for key, value in move.items() if key not in ("strategy", *GIVEN)}
    told = estimate(**KEYS | keys)
    assert shown["spoken"] == str(keys.get("gpus", KEYS["gpus"]))
    for each in told.estimates:
        row, memory, time = shown["rows"][each.strategy], each.memory, each.time
        step, waits = time.step_seconds or 0, time.exposed_communication_seconds or 0
        assert row == {
            "verdict": each.verdict.replace("_", " "),
            "device": significant((memory.device_bytes or 0) / GIB),
            "margin": significant(_margin(each) / GIB),
            "peak": significant(memory.peak_allocated_bytes / GIB),
            "step": significant(step),
            "band": f"{significant(time.low_seconds or 0)}-{significant(time.high_seconds or 0)}",
            "waits": significant(100 * waits / step),
            "speed": significant(time.tokens_per_second_per_gpu or 0),
            "mfu": significant(100 * (time.model_flops_utilization or 0)),
        }
    chosen = move.get("strategy") or (fastest(told).strategy if told.fits else None)
    assert shown["chosen"] == ([chosen] if chosen else [])


@pytest.mark.parametrize("place", range(len(MOVES)))
def test_costs_are_what_python_answers(probed: dict[str, Any], place: int) -> None:
    shown, move = probed["found"][place]["costs"], MOVES[place]
    price, tokens = move.get("price"), move.get("tokens")
    if price is None and tokens is None:
        assert shown is None
        return
    keys = {key: value for key, value in move.items() if key not in ("strategy", *GIVEN)}
    answer = with_budget(
        estimate(**KEYS | keys), int(tokens or 1), {"": price} if price else {}, None
    )
    for each in answer.estimates:
        assert each.budget
        budget, speed = each.budget, each.time.tokens_per_second_per_gpu or 0
        ends = (budget.low_cost_usd or 0, budget.high_cost_usd or 0)
        if not each.fits:
            assert shown[each.strategy] == ["-"] * 4
            continue
        assert shown[each.strategy] == [
            significant(MEGA / speed / HOUR * price) if price else "-",
            significant(budget.run_seconds / DAY) if tokens else "-",
            significant(budget.cost_usd or 0) if price and tokens else "-",
            " to ".join(map(significant, ends)) if price and tokens else "-",
        ]


def test_no_cost_is_told_of_what_does_not_fit(probed: dict[str, Any]) -> None:
    """Beside one that fits, whose sentence has the cost with its band."""
    told = probed["found"][7]["verdict"]
    assert told.startswith("ddp does not fit on ")
    assert "It takes" not in told
    assert re.search(
        r"It takes [\d.]+ USD per million tokens at 2\.5 USD per GPU-hour, [\d.]+ days and [\d,]+ "
        r"USD \([\d,]+ to [\d,]+\) for 2,000 billion tokens\.",
        probed["found"][8]["verdict"],
    )


def test_the_sentence_names_its_conditions(probed: dict[str, Any]) -> None:
    told = [each["verdict"] for each in probed["found"]]
    assert (
        "fits on 16 GPUs in nodes joined by InfiniBand NDR, 1 x 4,096 tokens per GPU: " in told[0]
    )
    assert " on 8 GPUs in one node, 4 x 8,192 tokens per GPU" in told[2]


@pytest.mark.parametrize(
    ("place", "name", "likely"), [(9, "zero1", "does not fit"), (10, "zero3", "fits")]
)
def test_a_tight_plan_says_within_what(
    probed: dict[str, Any], place: int, name: str, likely: str
) -> None:
    (told,) = estimate(**KEYS | TIGHT, strategy=name).estimates
    device = told.memory.device_bytes or 0
    ends = (significant((device + sign * _margin(told)) / GIB) for sign in (-1, 1))
    said = probed["found"][place]["verdict"]
    assert said.startswith(f"{name} is tight on 16 GPUs")
    assert f"GiB, probably {likely} ({' to '.join(ends)}); " in said


def test_where_all_that_may_fit_is_above_the_limit_nothing_is_called_fitting(
    probed: dict[str, Any],
) -> None:
    told = probed["found"][2]["verdict"]
    assert re.match(r"Nothing fits for sure\. \w+ is tight on 8 GPUs", told)
    assert "probably does not fit" in told


def test_the_address_holds_what_was_changed(probed: dict[str, Any]) -> None:
    assert probed["found"][1]["hash"] == "#what-if&gpus=32&link=ethernet-10g"
    changed = "gpus=8&batch_size=4&sequence_length=8192"
    assert probed["found"][2]["hash"] == f"#what-if&{changed}"
    assert probed["found"][6]["hash"] == "#what-if&tokens=300"


def test_an_address_with_answers_is_read(html: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(html)
    fragment = "what-if&gpus=32&link=ethernet-10g&batch_size=4&strategy=zero2&price=2"
    document, console = _chromium(page, "--dump-dom", fragment=fragment)
    assert console == ""
    told = document.partition('id="what-if-verdict"')[2].partition("</p>")[0]
    assert "zero2 " in told
    assert "on 32 GPUs in nodes joined by TCP over 10 Gbit/s Ethernet, 4 x 4,096 tokens" in told
    assert "at 2 USD per GPU-hour" in told


def test_the_question_comes_back_without_taking_price_and_tokens(probed: dict[str, Any]) -> None:
    assert probed["kept"] == ["2.5", "2000"]


def test_a_price_that_can_be_none_is_marked(probed: dict[str, Any]) -> None:
    assert probed["typed"] == [["true", False], ["true", False], [None, True]]


def test_charts_follow_the_table(probed: dict[str, Any]) -> None:
    answer = estimate(**KEYS | MOVES[1])
    for each in answer.estimates:
        memory = each.memory
        scale = 2 * (memory.usable_bytes or 0)
        peak, rest = (float(width[:-1]) for width in probed["found"][1]["bars"][each.strategy])
        device = min(memory.device_bytes or 0, scale)
        assert peak == pytest.approx(
            100 * min(memory.peak_allocated_bytes, scale) / scale, abs=1e-3
        )
        assert peak + rest == pytest.approx(100 * device / scale, abs=2e-3)


def test_reset_brings_the_question_back(probed: dict[str, Any]) -> None:
    assert probed["after"] == probed["found"][0]["verdict"]
    assert probed["found"][1]["verdict"] != probed["after"]


def test_a_phone_is_wide_enough(probed: dict[str, Any]) -> None:
    assert probed["wide"] <= 0
    assert probed["outside"] == []
    assert probed["overlapping"] == []


def test_a_table_that_goes_on_beyond_the_screen_says_so(probed: dict[str, Any]) -> None:
    """Its first column stays, and no head breaks inside a word."""
    assert any(goes_on for goes_on, *_ in probed["tables"])
    for goes_on, told, first, breaks in probed["tables"]:
        assert told == goes_on
        assert (first, breaks) == ("sticky", "none")


def test_python_draws_first_what_the_script_then_keeps(html: str, tmp_path: Path) -> None:
    """Without the script the page shows the same cells and bars as with it."""
    page = tmp_path / "page.html"
    page.write_text(html)
    document, _ = _chromium(page, "--dump-dom")
    cells = re.compile(r'<td data-cell="(\w+)"[^>]*>(.*?)</td>')
    bars = re.compile(r'<rect class="\w+" x="([\d.]+%)".*?width="([\d.]+%)"')
    assert len(cells.findall(html)) == 54
    assert cells.findall(document) == cells.findall(html)
    assert bars.findall(document) == bars.findall(html)
