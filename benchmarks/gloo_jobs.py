"""Ranks of `gloo_rank.py`, and their collectives as a table that `zeroplan calibrate` reads."""

import csv
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from veth import started

RANK = Path(__file__).parent / "gloo_rank.py"
LOOK_SECONDS = 0.1

COLUMNS = (
    "id",
    "source",
    "fabric",
    "collective",
    "backend",
    "gpu",
    "n_gpus",
    "gpus_per_node",
    "n_nodes",
    "intra_link",
    "inter_link",
    "message_bytes",
    "time_us",
)


Round = dict[str, Any]
"""What one rank saw in one round."""


def run_ranks(places: list[list[str]], task: dict[str, Any], folder: Path) -> list[list[Round]]:
    """Run a task on as many ranks as there are places, each a command that runs one there.

    What comes back has an entry for each rank, and in it one for each round.
    """
    path = folder / "task.json"
    path.write_text(json.dumps({"ranks": len(places), **task}))
    end = time.monotonic() + task["limit_seconds"]
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(started([*place, sys.executable, str(RANK), str(path), str(rank)]))
            for rank, place in enumerate(places)
        ]
        while any(rank.poll() is None for rank in ranks):
            codes = [rank.poll() for rank in ranks]
            if any(codes) or time.monotonic() > end:
                sys.exit(f"the ranks failed or took longer than {task['limit_seconds']} s: {codes}")
            time.sleep(LOOK_SECONDS)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(places))]


def rows(rounds: list[Round], link: str, source: str, **shape: Any) -> list[dict[str, Any]]:
    """Return the measured collectives of one job as rows of a table; the median of each counts."""
    lines = []
    for key in rounds[0]["collectives"]:
        name, size = key.split()
        seconds = median(each for found in rounds for each in found["collectives"][key])
        lines.append(
            {
                **shape,
                "id": f"{link}-{shape['n_gpus']}-{name}-{size}",
                "source": source,
                "collective": name,
                "backend": "gloo",
                "message_bytes": size,
                "time_us": f"{seconds * 1e6:.0f}",
            }
        )
    return lines


def write_table(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write rows as a CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
