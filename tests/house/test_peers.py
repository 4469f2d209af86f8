"""What is said of other tools: the arithmetic of their errors, and the page that shows them."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from zeroplan.backtesting.record import Metric, Score
from zeroplan.estimation.resolve import resolve
from zeroplan.spec.toml import load_spec

HOME = Path(__file__).parents[2]
PAGE = """\
<!-- steps -->
| source | rows | median of size [%] |
| --- | --- | --- |
| here | 2 | 8.0 |
| there | 3 | 10.0 |
| elsewhere | 1 | 30.0 |
<!-- end -->
<!-- peaks -->
| source | rows | median of size [%] |
| --- | --- | --- |
| here | 2 | 1.0 |
<!-- end -->
<!-- peer_steps -->
<!-- end -->
<!-- peer_peaks -->
<!-- end -->
<!-- peer_tools -->
<!-- end -->
"""


def _tool(name: str, steps: dict[str, tuple[int, float]]) -> dict[str, object]:
    errors = {s: {"rows": rows, "median_abs_error": error} for s, (rows, error) in steps.items()}
    return {
        "name": name,
        "version": "1.0",
        "efficiency": "",
        "errors": {"step_seconds": errors} if errors else {},
        "unanswered": {},
        "plans_per_second_ratio": 2000.0,
    }


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(HOME / "benchmarks")
    return import_module("peers")


@pytest.fixture
def other_tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(HOME / "docs")
    return import_module("other_tools")


def _score(name: str, source: str, metric: Metric, measured: float) -> Score:
    return Score(
        id=name,
        source_id=source,
        group={"source_id": source},
        metric=metric,
        measured=measured,
        predicted=measured,
        low=0.9 * measured,
        high=1.1 * measured,
    )


def test_the_page_shows_what_was_recorded_of_other_tools() -> None:
    """`python docs/other_tools.py` fills its tables anew."""
    check = [sys.executable, str(HOME / "docs" / "other_tools.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_the_versions_told_in_words_are_those_that_were_asked() -> None:
    record = json.loads((HOME / "docs" / "peers.json").read_text())
    page = (HOME / "docs" / "accuracy.md").read_text()
    words = page.partition("## The same rows, by other tools")[2]
    for tool in record["tools"]:
        assert f"{tool['name'].partition(',')[0]} {tool['version']}" in words
    assert record["date"] in words


def test_errors_of_a_tool_are_against_the_measurement_and_only_of_what_it_answered(
    peers: ModuleType,
) -> None:
    own = [
        _score("a", "here", "step_seconds", 2.0),
        _score("b", "here", "step_seconds", 4.0),
        _score("b", "here", "peak_bytes", 100.0),
        _score("c", "there", "step_seconds", 1.0),
    ]
    answers = {
        "a": {"step_seconds": 1.0},
        "b": {"step_seconds": 5.0, "peak_bytes": 130.0},
        "c": {"why": "several GPUs"},
    }
    found = peers.scored(own, answers)
    assert peers.errors(found) == {
        "step_seconds": {"here": {"rows": 2, "median_abs_error": 0.375}},  # of 1/2 and 1/4
        "peak_bytes": {"here": {"rows": 1, "median_abs_error": 0.3}},
    }
    assert all(score.inside_band is None for score in found.rows)


def test_medians_over_sources_are_of_the_sources_that_a_tool_answered(
    other_tools: ModuleType,
) -> None:
    record = {
        "asked": {
            "step_seconds": {"here": 2, "there": 3, "elsewhere": 1},
            "peak_bytes": {"here": 2},
        },
        "tools": [
            _tool("everything", {"here": (2, 0.5), "there": (3, 0.2), "elsewhere": (1, 0.3)}),
            _tool("little", {"here": (1, 0.1), "there": (3, 0.3)}),
            _tool("nothing", {}),
        ],
        "search": {"version": "2.0", "plans_per_second_ratio": 900.0},
    }
    page = other_tools.refreshed(PAGE, record)
    shown = page.partition("<!-- peer_steps -->\n")[2].partition("<!-- end -->")[0].splitlines()
    assert shown[0] == "| source | rows | zeroplan [%] | everything [%] | little [%] |"
    assert shown[2:] == [
        "| here | 2 | 8.0 | 50.0 | 10.0 (1) |",
        "| there | 3 | 10.0 | 20.0 | 30.0 |",
        "| elsewhere | 1 | 30.0 | 30.0 |  |",
        "| median of its sources | 6 | 10.0 | 30.0 | 20.0 |",
        "| zeroplan on these sources |  | 10.0 | 10.0 | 9.0 |",
    ]
    assert "| nothing | 1.0 |  | 0 | 0 | 2,000 x |" in page
    assert "| zeroplan, `plan` | 2.0 |  |  |  | 900 x |" in page


@pytest.mark.parametrize(
    ("strategy", "reshard", "stage"),
    [
        ("ddp", None, 0),
        ("zero1", None, 1),
        ("zero2", None, 2),
        ("zero3", None, 3),
        ("fsdp2", None, 3),
        ("fsdp2", False, 2),
    ],
)
def test_a_row_tells_other_tools_the_stage(
    peers: ModuleType, strategy: str, reshard: bool | None, stage: int
) -> None:
    keys = {} if reshard is None else {"reshard_after_forward": reshard}
    asked = resolve(load_spec(model="llama-3.1-8b", gpus=64, strategy=strategy, link="ib", **keys))
    row = peers.row_of(asked)
    assert row["stage"] == stage
    assert (row["gpus"], row["gpus_per_node"]) == (64, 8)
    assert row["parameters"] == 8_030_261_248
    assert (row["hidden"], row["ffn"], row["gated"], row["kv_heads"]) == (4096, 14336, True, 8)
