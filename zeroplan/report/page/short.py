"""The page in short: what fills the memory, what a slower link costs, how sure all this is."""

from html import escape
from typing import Final

from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.report.page.charts import PARTS, held
from zeroplan.report.page.grid import AXES, Grid
from zeroplan.rows import marked, readable, significant
from zeroplan.units import GIB

__all__ = ["chosen", "short"]

MOST: Final = 3
"""Strategies that are told of. [count]"""

MENDED: Final = (
    "More GPUs, as the sliders below show; `zeroplan explain` with the flags at the end of this page "
    "and --make-it-fit looks for the cheapest change."
)

SEEN: Final = 0.005
"""Share of the whole from which a part is named. [1]"""

FELT: Final = 1.1
"""Times as long from which a slower link is worth a word. [1]"""


def short(answer: Estimate, grid: Grid) -> str:
    """Return the questions that every reader has, each with its answer."""
    fitting = sorted(
        (each for each in answer.estimates if each.fits),
        key=lambda each: each.time.step_seconds or 0.0,
    )
    told = fitting[:MOST] or [chosen(answer)]
    questions = {
        "What fills the memory?": [_filled(each) for each in told],
        "What does a slower link cost?": [_slower(grid, [each.strategy for each in told])],
        "How sure is it?": [_sure(told[0])],
    }
    if not fitting:
        questions["What would make it fit?"] = [MENDED]
    items = (
        f"<dt>{escape(question)}</dt>{''.join(f'<dd>{marked(line)}</dd>' for line in lines)}"
        for question, lines in questions.items()
    )
    return f'<dl class="short">{"".join(items)}</dl>'


def chosen(answer: Estimate) -> StrategyEstimate:
    """Return the fastest that fits, or the one that is nearest to it."""
    nearest = max(answer.estimates, key=lambda each: each.memory.headroom_bytes or 0)
    return answer.fastest or nearest


def _filled(each: StrategyEstimate) -> str:
    """Say what a strategy's peak is made of, most first."""
    memory = each.memory
    parts = sorted(held(each).items(), key=lambda part: -part[1])
    needed = sum(size for _, size in parts)
    listed = ", ".join(
        f"{PARTS[kind]} {significant(size / GIB)}" for kind, size in parts if size > SEEN * needed
    )
    usable = readable(memory.usable_bytes or 0, "B")
    return (
        f"{each.strategy} takes {significant(needed / GIB)} of {usable} at its peak "
        f"({memory.peak_moment}): {listed} GiB."
    )


def _slower(grid: Grid, strategies: list[str]) -> str:
    """Say what the next link costs that anybody would feel, with each strategy."""
    links, here = grid.axes["cluster.link"], grid.asked[2]
    steps = {each: _steps(grid, each) for each in strategies}
    for at in range(here + 1, len(links)):
        pairs = {each: (found[here], found[at]) for each, found in steps.items()}
        told = [
            f"{significant(then / now)} times as long with {each} "
            f"({significant(then)} s, not {significant(now)})"
            for each, (now, then) in pairs.items()
            if now and then
        ]
        if any(now and then and then > FELT * now for now, then in pairs.values()):
            named = f"{grid.names[links[at]]} instead of {grid.names[links[here]]}"
            return f"On {named} a step takes {', '.join(told)}."
    return "None that is offered below makes a step longer by a tenth."


def _steps(grid: Grid, strategy: str) -> list[float | None]:
    """Return the step times of a strategy on each link, all else as asked. [s]"""
    row, links = grid.axes[AXES[0]].index(strategy), grid.axes["cluster.link"]
    places = (grid.place((row, grid.asked[1], at, *grid.asked[3:])) for at in range(len(links)))
    return [grid.figures["step_seconds"][place] for place in places]


def _sure(each: StrategyEstimate) -> str:
    """Say within what the figures of a strategy lie."""
    time, beyond = each.time, held(each)["rest"]
    return (
        f"A step of {each.strategy} lies between {significant(time.low_seconds or 0.0)} and "
        f"{significant(time.high_seconds or 0.0)} s in eight cases of ten. Tensors follow from the "
        f"framework's own order of events; the {readable(beyond, 'B')} beyond them, kept by the "
        "allocator, CUDA and NCCL, are the uncertain part."
    )
