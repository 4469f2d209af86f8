"""Bar charts as inline SVG that keep the size of their text on any screen.

Horizontal places are shares of the width and vertical ones pixels: a narrow screen shortens bars
and leaves letters alone. Names and figures stand over each bar, so no axis is needed, and what a
bar's part is appears where the pointer rests on it. `page.js` moves the same marks.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.estimation.tables import verdict_words
from zeroplan.records import dataclass
from zeroplan.report.page.grid import Grid
from zeroplan.rows import readable, significant

__all__ = [
    "PARTS",
    "SPENT",
    "Bar",
    "Part",
    "chart",
    "held",
    "legend",
    "memory_bars",
    "time_bars",
    "waiting_bars",
]

ROW: Final = 46
"""Height of a bar with its words. [px]"""
HEAD: Final = 22
"""Height of the line that names the limit. [px]"""
BEYOND: Final = 2.0
"""Shares of the limit at which a bar of memory is cut. [1]"""

PARTS: Final = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations and loss",
    "buffers": "buffers of the framework",
    "rest": "kept by the allocator, CUDA context, NCCL",
}
"""What a device holds at the peak, by the name of its colour."""

SPENT: Final = {
    "compute": "computes",
    "waits": "waits for communication",
    "host": "waits for the host",
    "band": "band, eight steps in ten",
}
"""What a step is spent on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a bar."""

    kind: str
    """Names its colour."""
    value: float
    told: str
    """What it is, with figure and unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Pieces one behind the other, and the words over them."""

    name: str
    note: str
    parts: tuple[Part, ...]
    band: tuple[float, float] | None = None
    faint: bool = False


def chart(
    bars: Iterable[Bar],
    scale: float,
    told: str,
    *,
    name: str = "",
    limit: float | None = None,
    limit_name: str = "",
) -> str:
    """Return bars as SVG.

    Parameters
    ----------
    bars
        From top to bottom.
    scale
        The value at the right edge, where longer bars are cut.
    told
        What the chart shows, in a sentence, for those who do not see it.
    name
        Id of the element.
    limit
        A value that is drawn across all bars, with its name.

    """
    rows = tuple(bars)
    height = HEAD * (limit is not None) + ROW * len(rows)
    marks = "".join(
        _bar(bar, HEAD * (limit is not None) + ROW * row, scale) for row, bar in enumerate(rows)
    )
    if limit is not None:
        at, side = _percent(limit, scale), "end" if limit > scale / 2 else "start"
        marks += (
            f'<line class="limit" x1="{at}" x2="{at}" y1="16" y2="{height}"/>'
            f'<text class="limit-name" x="{at}" y="12" text-anchor="{side}">'
            f"{escape(limit_name)}</text>"
        )
    named = f' id="{name}" data-scale="{scale!r}"' if name else ""
    return (
        f'<svg class="chart"{named} role="img" aria-label="{escape(told)}" width="100%" '
        f'height="{height}">{marks}</svg>'
    )


def legend(names: dict[str, str]) -> str:
    """Return what the colours of a chart mean."""
    items = (
        f'<li><span class="swatch {kind}"></span>{escape(word)}</li>'
        for kind, word in names.items()
    )
    return f'<ul class="legend" aria-hidden="true">{"".join(items)}</ul>'


def memory_bars(answer: Estimate) -> tuple[Bar, ...]:
    """Return what fills the device at the peak under each strategy. [B]"""
    return tuple(
        Bar(
            name=each.strategy,
            note=f"{readable(each.memory.device_bytes or 0, 'B')}, {verdict_words(each)}",
            parts=tuple(
                Part(kind=kind, value=size, told=f"{PARTS[kind]}: {readable(size, 'B')}")
                for kind, size in held(each).items()
            ),
        )
        for each in answer.estimates
    )


def held(each: StrategyEstimate) -> dict[str, int]:
    """Return what fills the device at the peak, by the names of `PARTS`. [B]"""
    peak, memory = each.memory.peak_breakdown_bytes, each.memory
    states = {
        "parameters": peak.parameters,
        "gradients": peak.gradients,
        "optimizer": peak.optimizer,
        "activations": peak.activations + peak.loss,
    }
    buffers = memory.peak_allocated_bytes - sum(states.values())
    rest = (memory.device_bytes or memory.peak_allocated_bytes) - memory.peak_allocated_bytes
    return {**states, "buffers": buffers, "rest": rest}


def time_bars(answer: Estimate) -> tuple[Bar, ...]:
    """Return the step under each strategy: what it computes, what it waits, and its band. [s]"""
    return tuple(_time_bar(each) for each in answer.estimates if each.time.step_seconds)


def _time_bar(each: StrategyEstimate) -> Bar:
    time = each.time
    step, waits = time.step_seconds or 0.0, time.exposed_communication_seconds or 0.0
    host = time.exposed_offload_seconds or 0.0
    spent = {"compute": step - waits - host, "waits": waits, "host": host}
    low, high = time.low_seconds or step, time.high_seconds or step
    fits = "" if each.fits else ", does not fit"
    return Bar(
        name=each.strategy,
        note=f"{significant(step)} s ({significant(low)} to {significant(high)}){fits}",
        parts=tuple(
            Part(kind=kind, value=seconds, told=f"{SPENT[kind]}: {significant(seconds)} s")
            for kind, seconds in spent.items()
        ),
        band=(low, high),
        faint=not each.fits,
    )


def waiting_bars(grid: Grid) -> tuple[Bar, ...]:
    """Return the share of the step that the asked strategy waits on each link. [1]"""
    found = []
    for link, place in grid.beside("cluster.link").items():
        step, waits = (
            grid.figures[name][place] for name in ("step_seconds", "exposed_communication_seconds")
        )
        if step is None or waits is None:
            continue
        told = f"{significant(100 * waits / step)} % of {significant(step)} s"
        part = Part(kind="waits", value=waits / step, told=told)
        found.append(Bar(name=grid.names[link], note=told, parts=(part,)))
    return tuple(found)


def _bar(bar: Bar, top: int, scale: float) -> str:
    begin, marks = 0.0, []
    for part in bar.parts:
        left, right = min(begin, scale), min(begin + part.value, scale)
        marks.append(
            f'<rect class="{part.kind}" x="{_percent(left, scale)}" y="{top + 22}" height="16" '
            f'width="{_percent(right - left, scale)}"><title>{escape(part.told)}</title></rect>'
        )
        begin += part.value
    if bar.band is not None:
        low, high = (_percent(min(end, scale), scale) for end in bar.band)
        marks.append(
            f'<line class="band" x1="{low}" x2="{high}" y1="{top + 30}" y2="{top + 30}">'
            f"<title>eight steps in ten</title></line>"
        )
    cut = "»" if begin > scale else ""
    faint = ' class="faint"' if bar.faint else ""
    return (
        f'<g data-row="{escape(bar.name)}"{faint}>'
        f'<text class="name" x="0" y="{top + 16}">{escape(bar.name)}</text>'
        f'<text class="note" x="100%" y="{top + 16}" text-anchor="end">{escape(bar.note)}</text>'
        f"{''.join(marks)}"
        f'<text class="cut" x="100%" y="{top + 36}" text-anchor="end">{cut}</text></g>'
    )


def _percent(value: float, scale: float) -> str:
    return f"{100 * value / scale:.3f}%"
