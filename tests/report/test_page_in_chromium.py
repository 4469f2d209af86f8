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
from zeroplan.report.page.document import page_html
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
MOVES: Final[list[dict[str, Any]]] = [
    {},
    {"gpus": 32, "link": "ethernet-10g"},
    {"gpus": 8, "micro_batch_size": 4, "sequence_length": 8192},
    {"gpus": 32, "micro_batch_size": 4, "link": "ethernet-10g", "strategy": "zero2"},
    {"gpus": 8, "sequence_length": 8192, "price": 2.5, "tokens": 2e12},
    {"gpus": 32, "price": 1.75},
    {"tokens": 3e11},
]
GIVEN: Final = {"price": 1.0, "tokens": 1e9}
"""What the reader may give, and its unit."""

PHONE: Final = 390
"""Width of a phone's screen. [px]"""

PROBE: Final = """
<script>
addEventListener("error", (event) => { document.title = "error: " + event.message; });
</script>
<script type="module">
const grid = JSON.parse(document.getElementById("grid").textContent);
const found = [];
for (const move of MOVES) {
  for (const control of document.querySelectorAll("[data-key]")) {
    const name = control.dataset.key.split(".")[1];
    const axis = grid.axes[control.dataset.key];
    if (name in move) control.value = name === "strategy" ? move[name] : axis.indexOf(move[name]);
    control.dispatchEvent(new Event("input", { bubbles: true }));
  }
  for (const [name, unit] of Object.entries(GIVEN)) {
    const field = document.getElementById("give-" + name);
    field.value = name in move ? move[name] / unit : "";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const rows = [...document.querySelectorAll("#what-if-table tbody tr")];
  found.push({
    verdict: document.getElementById("what-if-verdict").textContent,
    chosen: rows.filter((row) => row.className === "chosen").map((row) => row.dataset.row),
    rows: Object.fromEntries(rows.map((row) => [row.dataset.row,
      Object.fromEntries([...row.cells].slice(1).map((cell) => [cell.dataset.cell, cell.textContent]))])),
    bars: Object.fromEntries([...document.querySelectorAll("#what-if-memory g")].map((row) =>
      [row.dataset.row, [...row.querySelectorAll("rect")].map((mark) => mark.getAttribute("width"))])),
    costs: document.getElementById("what-if-cost").hidden ? null
      : Object.fromEntries([...document.querySelectorAll("#what-if-cost tbody tr")].map((row) => [row.dataset.row,
        [...row.querySelectorAll("td")].map((cell) => cell.textContent)])),
    spoken: document.querySelector("[data-key='cluster.gpus']").getAttribute("aria-valuetext"),
  });
  document.getElementById("what-if-form").reset();
  await new Promise((done) => setTimeout(done));
}
document.documentElement.style.width = WIDTH + "px";
const out = document.createElement("pre");
out.id = "probed";
out.textContent = JSON.stringify({
  found,
  after: document.getElementById("what-if-verdict").textContent,
  wide: document.body.scrollWidth - WIDTH,
  outside: [...document.querySelectorAll("svg text")].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width && (box.left < -1 || box.right > WIDTH + 1);
  }).map((each) => each.textContent),
  overlapping: [...document.querySelectorAll("svg g")].filter((row) => {
    const [name, note] = ["name", "note"].map((kind) => row.querySelector("." + kind).getBoundingClientRect());
    return name.right > note.left;
  }).map((row) => row.textContent),
});
document.body.append(out);
</script>
"""


def _chromium(page: Path, *options: str) -> tuple[str, str]:
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
        page.as_uri(),
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
            "peak": significant(memory.peak_allocated_bytes / GIB),
            "step": significant(step),
            "band": f"{significant(time.low_seconds or 0)}-{significant(time.high_seconds or 0)}",
            "waits": significant(100 * waits / step),
            "speed": significant(time.tokens_per_second_per_gpu or 0),
            "mfu": significant(100 * (time.model_flops_utilization or 0)),
        }
    chosen = move.get("strategy") or (told.fastest.strategy if told.fastest else None)
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
        assert shown[each.strategy] == [
            significant(MEGA / speed / HOUR * price) if price else "-",
            significant(budget.run_seconds / DAY) if tokens else "-",
            significant(budget.cost_usd or 0) if price and tokens else "-",
            " to ".join(map(significant, ends)) if price and tokens else "-",
        ]


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


def test_python_draws_first_what_the_script_then_keeps(html: str, tmp_path: Path) -> None:
    """Without the script the page shows the same cells and bars as with it."""
    page = tmp_path / "page.html"
    page.write_text(html)
    document, _ = _chromium(page, "--dump-dom")
    cells = re.compile(r'<td data-cell="(\w+)"[^>]*>(.*?)</td>')
    bars = re.compile(r'<rect class="\w+" x="([\d.]+%)".*?width="([\d.]+%)"')
    assert len(cells.findall(html)) == 48
    assert cells.findall(document) == cells.findall(html)
    assert bars.findall(document) == bars.findall(html)
