"""What the drivers share: rows come in as JSON, answers go out as JSON, priced on a clock.

A driver is a script that runs in the peers' environment, without zeroplan. Its `price` takes one
row, which `peer_rows.py` of the folder above writes, and returns the metrics that its tool has, or
raises InexpressibleError. The answers go to the file that is named first on the command line, for
tools print what they like.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Answer = dict[str, float | None]
"""`step_seconds` and `peak_bytes`; what is missing or None the tool does not predict."""

ZERO2, ZERO3 = 2, 3
HALF, FULL = 2, 4
"""Bytes of an element."""


class InexpressibleError(Exception):
    """The tool has no word for something in the row; the message says for what."""


def serve(package: str, price: Callable[[Row], Answer]) -> None:
    """Answer the rows of stdin; the first is priced before the clock starts."""
    rows = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    answers = [_answer(price, row) for row in rows[:1]]
    start, busy = time.perf_counter(), 0.0
    for row in rows[1:]:
        answers.append(_answer(price, row))
        now = time.perf_counter()
        busy += (now - start) * ("why" not in answers[-1])
        start = now
    answered = sum("why" not in answer for answer in answers[1:])
    per_second = answered / busy if busy else None
    told = {"version": version(package), "answers": answers, "plans_per_second": per_second}
    Path(sys.argv[1]).write_text(json.dumps(told), encoding="utf-8")


def _answer(price: Callable[[Row], Answer], row: Row) -> dict[str, Any]:
    try:
        return dict(price(row))
    except InexpressibleError as reason:
        return {"why": str(reason)}


def known(names: dict[str, Any], row: Row, key: str) -> Any:
    """Return the tool's own name of what a row says."""
    if row[key] not in names:
        raise InexpressibleError(f"{key.replace('_', ' ')} {row[key]}")
    return names[row[key]]


def unsharded_across(row: Row) -> None:
    """Refuse shard groups smaller than the world (HSDP)."""
    if row["stage"] and row["shard_size"] != row["gpus"]:
        raise InexpressibleError("shard groups smaller than the world")
