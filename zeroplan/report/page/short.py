"""The page in short: what fills the memory, what a slower link costs, how sure all this is."""

from collections.abc import Iterator
from html import escape
from typing import Final

from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.report.page.charts import PARTS, held
from zeroplan.report.page.fit import chosen, probably_fits
from zeroplan.report.page.grid import Grid
from zeroplan.report.page.links import in_one_node, longer, steps
from zeroplan.rows import marked, readable, significant
from zeroplan.units import GIB

__all__ = ["beside", "short"]

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
    best = chosen(answer)
    told = [best, *(each for each in fitting if each is not best)][:MOST]
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


def beside(answer: Estimate) -> Iterator[str]:
    """Say what is about as fast as the fastest, and how many tokens a step takes in."""
    best = chosen(answer)
    alike = [
        f"{each.strategy} ({significant(each.time.step_seconds or 0.0)} s)"
        for each in answer.estimates
        if each is not best and probably_fits(each) and _within(each, best) and _within(best, each)
    ]
    if alike and probably_fits(best):
        yield (
            f"{best.strategy} is about equal to {', '.join(alike)}: each step lies within the "
            "band of the other."
        )
    cluster, training = answer.inputs.cluster, answer.inputs.training
    each_takes = training.micro_batch_size * (training.sequence_length or 0)
    steps = training.gradient_accumulation_steps
    several = f" x {steps:,} micro-steps" if steps > 1 else ""
    yield (
        f"A step of all GPUs together takes in {each_takes * steps * cluster.gpus:,} tokens: "
        f"{cluster.gpus:,} GPUs x {training.micro_batch_size:,} x "
        f"{training.sequence_length or 0:,}{several}."
    )


def _within(each: StrategyEstimate, other: StrategyEstimate) -> bool:
    """Whether a step lies within the band of another."""
    step, low, high = each.time.step_seconds, other.time.low_seconds, other.time.high_seconds
    return None not in (step, low, high) and (low or 0.0) <= (step or 0.0) <= (high or 0.0)


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
    alone = in_one_node(grid)
    if alone:
        return alone
    links, here = grid.axes["cluster.link"], grid.asked[2]
    found = {each: steps(grid, each) for each in strategies}
    for at in range(here + 1, len(links)):
        pairs = [
            (each, then, now)
            for each in found
            if (then := found[each][at]) and (now := found[each][here])
        ]
        if any(then.step > FELT * now.step for _, then, now in pairs):
            told = (longer(then, now, f" with {each}") for each, then, now in pairs)
            named = f"{grid.names[links[at]]} instead of {grid.names[links[here]]}"
            return f"On {named} a step takes {', '.join(told)}."
    return "None that is offered below makes a step longer by a tenth."


def _sure(each: StrategyEstimate) -> str:
    """Say within what the figures of a strategy lie."""
    time, beyond = each.time, held(each)["rest"]
    return (
        f"A step of {each.strategy} lies between {significant(time.low_seconds or 0.0)} and "
        f"{significant(time.high_seconds or 0.0)} s in eight cases of ten. Tensors follow from the "
        f"framework's own order of events; the {readable(beyond, 'B')} beyond them, kept by the "
        "allocator, CUDA and NCCL, are the uncertain part."
    )
