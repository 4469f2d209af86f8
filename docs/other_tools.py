"""Fill the tables of docs/accuracy.md that show other tools, from what was recorded of them.

    python docs/other_tools.py            rewrite docs/accuracy.md
    python docs/other_tools.py --check    only say whether it is stale

`python benchmarks/peers.py RUNS.csv --write` asks the tools and records docs/peers.json. What
stands there of zeroplan is taken from the page's own tables.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tables import column, filled, percent, table

PAGE: Final = Path(__file__).parent / "accuracy.md"
RECORD: Final = Path(__file__).parent / "peers.json"
OWN: Final = {"step_seconds": "steps", "peak_bytes": "peaks"}
"""The page's table of zeroplan's own errors, by metric."""

Tool = dict[str, Any]


def refreshed(page: str, record: dict[str, Any]) -> str:
    """Return the page with the tables of a record."""
    tools: list[Tool] = record["tools"]
    made = {
        f"peer_{own}": errors(column(page, own, "median of size [%]"), metric, record)
        for metric, own in OWN.items()
    }
    lines = (*map(facts, tools), searching(record["search"]))
    return filled(page, made | {"peer_tools": table(TOOLS, lines)})


TOOLS: Final = (
    "tool",
    "version",
    "of the peak it assumes",
    "step times",
    "peaks",
    "plans per second",
)


def searching(search: dict[str, Any]) -> tuple[object, ...]:
    """Write the speed of zeroplan's own search."""
    ratio = f"{search['plans_per_second_ratio']:,g} x"
    return "zeroplan, `plan`", search["version"], "", "", "", ratio


def facts(tool: Tool) -> tuple[object, ...]:
    """Write what a tool is, how many rows it answered, and its speed in zeroplan's estimates."""
    answered = [
        sum(source["rows"] for source in tool["errors"].get(metric, {}).values()) for metric in OWN
    ]
    ratio = f"{tool['plans_per_second_ratio']:,g} x"
    return tool["name"], tool["version"], tool["efficiency"], *answered, ratio


def errors(own: dict[str, str], metric: str, record: dict[str, Any]) -> str:
    """Return the table of one metric: a line per source, then medians over the sources."""
    asked: dict[str, int] = record["asked"][metric]
    tools = [tool for tool in record["tools"] if metric in tool["errors"]]
    heads = ("source", "rows", "zeroplan [%]", *(f"{tool['name']} [%]" for tool in tools))
    return table(heads, by_source(own, asked, [tool["errors"][metric] for tool in tools]))


def by_source(
    own: dict[str, str], asked: dict[str, int], found: Sequence[dict[str, dict[str, float]]]
) -> Iterator[tuple[object, ...]]:
    """Write a line per source, with the rows that were answered where some were not."""
    for source, rows in asked.items():
        yield source, rows, own[source], *(cell(each.get(source), rows) for each in found)
    everywhere = [
        median(each["median_abs_error"] for each in sources.values()) for sources in found
    ]
    whole = f"{median(float(own[source]) for source in asked):.1f}"
    yield "median of its sources", sum(asked.values()), whole, *map(percent, everywhere)
    same = [median(float(own[source]) for source in sources) for sources in found]
    yield "zeroplan on these sources", "", whole, *(f"{each:.1f}" for each in same)


def cell(figures: dict[str, float] | None, rows: int) -> str:
    """Write a median, and of how many rows where these are not all."""
    if figures is None:
        return ""
    told = percent(figures["median_abs_error"])
    return told if figures["rows"] == rows else f"{told} ({figures['rows']:.0f})"


def main() -> None:
    """Rewrite the page, or tell that it is stale and exit with 1."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = refreshed(page, json.loads(RECORD.read_text(encoding="utf-8")))
    if fresh == page:
        return
    if "--check" in sys.argv:
        print(f"docs/{PAGE.name} is stale")
        sys.exit(1)
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
