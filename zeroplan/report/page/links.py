"""The part of the page about the link between nodes, and what other links cost."""

from html import escape
from typing import Final, NamedTuple

from zeroplan.estimation.tables import span
from zeroplan.report.page.charts import chart, waiting_bars
from zeroplan.report.page.grid import AXES, Grid
from zeroplan.report.page.parts import scrolled
from zeroplan.rows import Cell, Column, Table, significant

__all__ = ["Spent", "in_one_node", "links", "longer", "steps"]

ALIKE: Final = 0.05
"""Share of a step by which another may differ and still be called about as long. [1]"""


class Spent(NamedTuple):
    """A step and the ends of its band. [s]"""

    step: float
    low: float
    high: float


def steps(grid: Grid, strategy: str) -> list[Spent | None]:
    """Return the step of a strategy on each link, all else as asked."""
    row, count = grid.axes[AXES[0]].index(strategy), len(grid.axes["cluster.link"])
    found: list[Spent | None] = []
    for at in range(count):
        place = grid.place((row, grid.asked[1], at, *grid.asked[3:]))
        step, low, high = (
            grid.figures[name][place] for name in ("step_seconds", "low_seconds", "high_seconds")
        )
        found.append(Spent(step, low or step, high or step) if step else None)
    return found


def longer(then: Spent, now: Spent, named: str = "") -> str:
    """Say how many times as long a step is, and within what, as few digits as that deserves."""
    if abs(then.step / now.step - 1) < ALIKE:
        return f"about as long{named}"
    return (
        f"about {significant(then.step / now.step, 2)} times as long{named} "
        f"({significant(then.step, 2)} s, {significant(then.low, 2)} to "
        f"{significant(then.high, 2)} s in eight cases of ten)"
    )


def in_one_node(grid: Grid) -> str:
    """Say so where all GPUs that are asked for are in one node; else nothing."""
    gpus = grid.axes["cluster.gpus"][grid.asked[1]]
    if gpus > grid.gpus_per_node:
        return ""
    return "All GPUs are in one node: no link between nodes is used, whichever is chosen."


def links(grid: Grid) -> str:
    """Return what other links between the nodes would mean."""
    alone = in_one_node(grid)
    if alone:
        return f"<p>{escape(alone)}</p>"
    bars, strategy = waiting_bars(grid), grid.axes[AXES[0]][grid.asked[0]]
    told = f"Waiting of {strategy}: {'; '.join(f'{bar.name} {bar.note}' for bar in bars)}."
    return (
        f"<p>Share of a step that {escape(strategy)} waits for communication, all else as asked."
        f"</p><figure>{chart(bars, 1.0, told)}</figure><p>{escape(_compared(grid))}</p>"
        f"{scrolled(_link_table(grid))}"
    )


def _compared(grid: Grid) -> str:
    """Say how much longer or shorter a step is on other links."""
    names = [grid.names[link] for link in grid.axes["cluster.link"]]
    strategy, at = grid.axes[AXES[0]][grid.asked[0]], grid.asked[2]
    found = steps(grid, strategy)
    now = found[at]
    times = [
        longer(then, now, f" on {name}")
        for place, (name, then) in enumerate(zip(names, found, strict=True))
        if now and then and place != at
    ]
    if not times or not now:
        return ""
    here = f"{names[at]} ({significant(now.step)} s)"
    return f"Compared with {here}, a step of {strategy} is {', '.join(times)}."


def _link_table(grid: Grid) -> Table:
    """Return the step time on every link, with its band where the strategy fits. [s]"""
    columns: list[Column] = [Column(name="link", is_text=True)]
    cells: list[list[Cell]] = []
    for strategy, place in grid.beside(AXES[0]).items():
        found = steps(grid, strategy)
        columns.append(Column(name=strategy))
        cells.append([each and each.step for each in found])
        if grid.verdicts[place] in ("fits", "tight"):
            columns.append(Column(name="eight in ten"))
            cells.append([each and span(each.low, each.high) for each in found])
    names: list[Cell] = [grid.names[link] for link in grid.axes["cluster.link"]]
    return Table(
        title="Step time by link between nodes [s]",
        columns=tuple(columns),
        rows=tuple(zip(names, *cells, strict=True)),
    )
