"""Ask other tools about the measured runs that zeroplan is held against, and how fast they answer.

    python benchmarks/peers.py RUNS.csv [--environment DIR] [--write]

The tools are installed into an environment of their own, a temporary one unless a folder is named,
and each is asked by its driver in `peer_drivers`. A row reaches them as zeroplan understands it,
its blanks filled with zeroplan's defaults; no tool is told an efficiency of the run. A tool that has
no word for something in a row does not answer it. `--write` records the outcome in docs/peers.json;
`python docs/other_tools.py` then fills docs/accuracy.md.
"""

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import search_speed
from peer_rows import plans, row_of

from zeroplan import __version__
from zeroplan.backtesting import Backtest, backtest
from zeroplan.backtesting.holdout import held_out, runs_of
from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.record import Metric, Score
from zeroplan.backtesting.table import read_table
from zeroplan.cli.files import write_whole
from zeroplan.records import dataclass, replace

HOME = Path(__file__).parents[1]
DRIVERS = Path(__file__).parent / "peer_drivers"
RECORD = HOME / "docs" / "peers.json"
ROUNDS = 3
CHECKPOINTING = {"training.activation_checkpointing": "full"}
"""A third of the mixed space takes long enough."""
METRICS: tuple[Metric, ...] = ("step_seconds", "peak_bytes")
INSTALL = (
    ("torch==2.13.0",),
    ("mlsysim==0.3.0", "fitcheck-llm==0.3.1", "ftuneai==0.4.1"),
    ("--no-deps", "llm-analysis==0.2.2"),  # its pins exclude every current transformers
    ("fire",),
    ("--no-build-isolation", "deepspeed==0.19.8"),  # its build imports torch
)
"""Arguments of pip, one installation after the other."""

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that can be asked."""

    name: str
    driver: str
    efficiency: str = ""
    """What share of the peak it assumes where it is told nothing, in words."""
    arguments: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = METRICS
    """What its answers are used for."""


PEERS = (
    Tool(name="mlsysim", driver="mlsysim", efficiency="0.5"),
    Tool(name="llm-analysis", driver="llm_analysis", efficiency="1"),
    Tool(
        name="llm-analysis, 0.5",
        driver="llm_analysis",
        efficiency="0.5, its remark on Megatron-LM",
        arguments=("0.5",),
        metrics=("step_seconds",),
    ),
    Tool(name="ftuneai", driver="ftuneai", efficiency="0.35"),
    Tool(name="DeepSpeed", driver="deepspeed"),
    Tool(name="fitcheck-llm", driver="fitcheck"),
)
ZEROPLAN = Tool(name="zeroplan", driver="zeroplan")
"""Its speed is 1."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    options.add_argument("runs", metavar="RUNS.csv")
    options.add_argument("--environment", metavar="DIR", type=Path)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    own = own_scores(given.runs)
    rows = rows_of(given.runs, {score.id for score in own})
    with tempfile.TemporaryDirectory(prefix="zeroplan-") as folder:
        python = environment(given.environment or Path(folder))
        told = [outcome(python, peer, own, rows) for peer in PEERS]
        search, *ratios = speeds(python)
        for tool, ratio in zip(told, ratios, strict=True):
            tool["plans_per_second_ratio"] = ratio
    show(Backtest(rows=tuple(own), skipped=()), told)
    print(f"{'zeroplan, plan':18} {__version__:8} {search:>10,}")
    if given.write:
        record = {
            "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
            "command": "python benchmarks/peers.py RUNS.csv --write",
            "asked": {
                metric: Counter(s.source_id for s in own if s.metric == metric)
                for metric in METRICS
            },
            "tools": told,
            "search": {"version": __version__, "plans_per_second_ratio": search},
        }
        write_whole(RECORD, json.dumps(record, indent=1) + "\n", "--write")


def own_scores(path: str) -> list[Score]:
    """Predict the core rows as docs/accuracy.md does: step times held out by source."""
    core = {cells.id for cells in read_table(Path(path), ()) if cells.text("core") != "no"}
    steps = held_out(list(runs_of(path)), lambda *_: None)
    peaks = (score for score in backtest(path).rows if score.metric == "peak_bytes")
    return [*steps, *(score for score in peaks if score.id in core)]


def rows_of(path: str, ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return the rows that are to be asked, by id."""
    table = [cells for cells in read_table(Path(path), ()) if cells.id in ids]
    return {cells.id: row_of(question_of_row(cells, None)) for cells in table}


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with all tools, made where there is none."""
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for packages in INSTALL:
            print("installing", *packages, file=sys.stderr)
            command = [str(python), "-m", "pip", "install", "--quiet", *packages]
            subprocess.run(command, env=os.environ | {"DS_BUILD_OPS": "0"}, check=True)
        done.touch()
    return python


def outcome(
    python: Path, peer: Tool, own: Iterable[Score], rows: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return what is recorded of a tool."""
    print("asking", peer.name, file=sys.stderr)
    asked = list(rows.values())
    told = ask(python, peer, [*asked[:1], *asked])
    answers = dict(zip(rows, told["answers"][1:], strict=True))
    found = scored((score for score in own if score.metric in peer.metrics), answers)
    return {
        "name": peer.name,
        "version": told["version"],
        "efficiency": peer.efficiency,
        "errors": errors(found),
        "unanswered": Counter(answer["why"] for answer in answers.values() if "why" in answer),
    }


def ask(python: Path, tool: Tool, rows: Rows) -> dict[str, Any]:
    """Return the answers of a tool, its version and its plans per second without the first."""
    with tempfile.TemporaryDirectory(prefix="zeroplan-") as folder:
        answers = Path(folder) / "answers.json"
        done = subprocess.run(
            [str(python), str(DRIVERS / f"price_{tool.driver}.py"), str(answers), *tool.arguments],
            input=json.dumps(rows),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{tool.name}: {done.stderr.strip().splitlines()[-1]}")
        told: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
    return told


def scored(own: Iterable[Score], answers: Mapping[str, Mapping[str, Any]]) -> Backtest:
    """Lay a tool's answers beside the same measurements as zeroplan's."""
    rows = (
        replace(score, predicted=predicted, low=None, high=None)
        for score in own
        if (predicted := answers[score.id].get(score.metric)) is not None
    )
    return Backtest(rows=tuple(rows), skipped=())


def errors(found: Backtest) -> dict[str, dict[str, dict[str, float]]]:
    """Return the rows and the median of the absolute errors [1], by metric and source."""
    told: dict[str, dict[str, dict[str, float]]] = {}
    for each in found.summary:
        figures = {"rows": each.rows, "median_abs_error": round(each.median_abs_error, 4)}
        told.setdefault(each.metric, {})[each.group["source_id"]] = figures
    return told


def speeds(python: Path) -> list[float]:
    """Return plans per second over those of single estimates, medians of rounds in turn. [1]

    The first is of zeroplan's own search, the others are of the peers.
    """
    first, *grid = plans()
    rounds: list[list[float]] = []
    for _ in range(ROUNDS):
        print("timing all", file=sys.stderr)
        rates = [
            ask(interpreter, tool, [first, *grid])["plans_per_second"]
            for interpreter, tool in (
                (Path(sys.executable), ZEROPLAN),
                *((python, peer) for peer in PEERS),
            )
        ]
        single, *others = rates
        rounds.append([rate / single for rate in (searched(), *others)])
    return [float(f"{median(ratios):.2g}") for ratios in zip(*rounds, strict=True)]


def searched() -> float:
    """Return plans per second of a search on one core: all strategies of a mixed space. [1/s]"""
    space, *_ = search_speed.spaces()
    families = [each for each in space.families() if CHECKPOINTING.items() <= each[0].items()]
    start = time.perf_counter()
    plans = sum(search_speed.priced((space, family, True))[0] for family in families)
    return plans / (time.perf_counter() - start)


def show(own: Backtest, told: Sequence[Mapping[str, Any]]) -> None:
    """Print the errors by metric and source, then the speeds."""
    everyone = [{"name": "zeroplan", "errors": errors(own)}, *told]
    for metric in METRICS:
        tools = [tool for tool in everyone if metric in tool["errors"]]
        print(f"\n{metric}: median of |error| [%] (rows)")
        print(f"{'':18}", *(f"{tool['name']:>18}" for tool in tools))
        for source in everyone[0]["errors"][metric]:
            print(f"{source:18}", *(cell(tool["errors"][metric].get(source)) for tool in tools))
        print(f"{'median of sources':18}", *(overall(tool["errors"][metric]) for tool in tools))
    print("\nplans per second, zeroplan's estimate = 1")
    for tool in told:
        print(
            f"{tool['name']:18} {tool['version']:8} {tool['plans_per_second_ratio']:>10,}",
            *tool["unanswered"].items(),
        )


def cell(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return " " * 18
    return f"{100 * figures['median_abs_error']:11.1f} {'(' + str(figures['rows']) + ')':>6}"


def overall(sources: Mapping[str, Mapping[str, float]]) -> str:
    middle = median(figures["median_abs_error"] for figures in sources.values())
    return f"{100 * middle:11.1f} {'(' + str(sum(f['rows'] for f in sources.values())) + ')':>6}"


if __name__ == "__main__":
    main()
