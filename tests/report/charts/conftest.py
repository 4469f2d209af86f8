"""Charts of invented figures, and what a person would see at once and a test of a file would not."""

from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import pytest
from matplotlib.axis import XAxis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from zeroplan.backtesting.record import Backtest, Metric, Score
from zeroplan.estimation.record import Verdict
from zeroplan.estimation.why_slow import Part
from zeroplan.report.charts import (
    breakdown,
    collective,
    fit,
    links,
    memory,
    memory_timeline,
    pareto,
    parity,
    scaling,
    timeline,
)
from zeroplan.report.charts.picture import Chart, Kind, figure_of
from zeroplan.report.charts.priced import Point
from zeroplan.report.charts.style import PARTS
from zeroplan.schedule.events import Event, Phase, Stream
from zeroplan.search.record import Choice
from zeroplan.sharding.groups import Group
from zeroplan.spec.toml import load_spec

Made = tuple[Kind, Any]

TOUCHING = 1.0
"""Overlap that is only that of the boxes, not of the letters. [px]"""


def _texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """Yield what is written on a figure with its box; ticks beyond the ends are not drawn."""
    hidden = {
        id(label)
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not _between(tick.get_loc(), ax.get_xlim() if isinstance(axis, XAxis) else ax.get_ylim())
    }
    for text in map(cast_to_text, figure.findobj(Text)):
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden:
            yield text.get_text(), Text.get_window_extent(text)  # without an annotation's arrow


def cast_to_text(artist: Any) -> Text:
    """Narrow what matplotlib only promises to be an artist."""
    assert isinstance(artist, Text)
    return artist


def _between(value: float, ends: tuple[float, float]) -> bool:
    low, high = sorted(ends)
    return low - 1e-9 <= value <= high + 1e-9


@pytest.fixture
def faults() -> Callable[[Kind, Chart], list[str]]:
    """Draw a chart and return which texts leave the page or lie on each other."""

    def find(kind: Kind, data: Any) -> list[str]:
        figure = figure_of(kind, data)
        figure.draw_without_rendering()
        texts = list(_texts(figure))
        assert len(texts) > 4
        page = figure.bbox.padded(TOUCHING)
        found = [
            f"{words!r} leaves the page"
            for words, box in texts
            if not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1))
        ]
        boxes = [(words, box.padded(-TOUCHING)) for words, box in texts]
        for place, (words, box) in enumerate(boxes):
            found += [f"{words!r} on {o!r}" for o, other in boxes[:place] if box.overlaps(other)]
        return found

    return find


STRATEGIES: Final = (
    "ddp",
    "zero1",
    "zero2",
    "zero3",
    "fsdp2",
    "hsdp",
    "fsdp1",
    "fsdp1-grad-op",
    "torch-zero1",
    "zero0",
    "none",
    "hybrid-shard-zero2",
)
PARITY: Final[tuple[tuple[Metric, float], ...]] = (("step_seconds", 1.0), ("peak_bytes", 2.0**30))
STREAMS: Final[tuple[Stream, ...]] = get_args(Stream)


def _memory(count: int, scale: float, context: str) -> Made:
    bars = []
    for place, name in enumerate(STRATEGIES[:count]):
        parts = {part: int((place + 1) * scale * 2**30) for part in PARTS}
        verdict: Verdict = "fits" if place < count / 2 else "does_not_fit"
        bars.append(
            memory.Bar(
                name=name,
                parts=parts,
                device_bytes=sum(parts.values()),
                usable_bytes=int(scale * 40 * 2**30),
                verdict=verdict,
            )
        )
    return memory.KIND, memory.MemoryChart(context=context, bars=tuple(bars))


def _scaling(count: int, scale: float, context: str) -> Made:
    lines = tuple(
        scaling.Line(
            strategy=name,
            gpus=scaling.GPUS,
            device_bytes=tuple(
                int(scale * 2**30 * (9 + 3 * place + 80 / gpus)) for gpus in scaling.GPUS
            ),
            step_seconds=tuple(
                scale * (1 + place / 50) * (1 + gpus / 8000) for gpus in scaling.GPUS
            ),
        )
        for place, name in enumerate(STRATEGIES[:count])
    )
    usable = int(scale * 80 * 2**30)
    return scaling.KIND, scaling.ScalingChart(context=context, usable_bytes=usable, lines=lines)


def _links(count: int, scale: float, context: str) -> Made:
    names = ("nvlink5", "ib-xdr800", "gcp-tcpxo-200", "ethernet-100g", "ethernet-1g")
    found = tuple(
        links.Served(
            strategy=strategy,
            link=link,
            hypothetical=not step,
            step_seconds=scale * (1 + step) ** 3 * (1 + place / 20),
            waiting=0.2 * step * (1 - place / 20),
        )
        for place, strategy in enumerate(STRATEGIES[:count])
        for step, link in enumerate(names)
    )
    return links.KIND, links.LinksChart(context=context, links=names, found=found)


def _breakdown(count: int, scale: float, context: str) -> Made:
    causes = {
        "matmuls and attention": "compute",
        "other kernels and copies": "memory_bandwidth",
        "gaps until the host issues": "host",
        "waiting for communication": "communication",
        "waiting for the host's memory": "offload",
    }
    steps = tuple(
        breakdown.Spent(
            name=name,
            step_seconds=5 * scale * (place + 1),
            parts=tuple(
                Part(name=part, cause=cause, seconds=scale * (place + 1))  # type: ignore[arg-type]
                for part, cause in causes.items()
            ),
        )
        for place, name in enumerate(STRATEGIES[:count])
    )
    return breakdown.KIND, breakdown.BreakdownChart(context=context, steps=steps)


def _timeline(count: int, scale: float, context: str) -> Made:
    streams, works = STREAMS[:count], []
    phases: tuple[Phase, ...] = ("forward", "backward", "optimizer")
    for place, phase in enumerate(phases):
        for lane, stream in enumerate(streams):
            doing: Any = phase if not lane else "collective" if lane < 4 else "copy"
            start = scale * (4 * place + 0.5 * lane)
            works.append(
                timeline.Work(
                    stream=stream,
                    what=f"{phase}, block 7, {stream}",
                    doing=doing,
                    start_seconds=start,
                    end_seconds=start + 2 * scale,
                )
            )
    data = timeline.TimelineChart(
        strategy=STRATEGIES[count - 1],
        context=context,
        step_seconds=max(work.end_seconds for work in works),
        works=tuple(timeline.gaps(iter(works))),
    )
    return timeline.KIND, data


def _memory_timeline(count: int, scale: float, context: str) -> Made:
    lives = []
    phases: tuple[Phase, ...] = ("forward", "backward", "optimizer")
    for phase in phases:
        for block in range(count):
            high = block if phase == "forward" else count - block
            sizes = dict.fromkeys(memory.PART_OF, 2**30) | {"activations": (high + 1) * 2**32}
            scaled = {part: int(scale * size) for part, size in sizes.items()}
            event = Event(name="compute", phase=phase, stream="compute", owner="block")
            lives.append(
                memory_timeline.Moment(event=event, block=block, bytes=scaled, after=scaled)
            )
    data = memory_timeline.MemoryTimelineChart(
        strategy=STRATEGIES[count - 1],
        context=context,
        moment=f"backward, block {count - 1}, of the last micro-step",
        lives=tuple(lives),
    )
    return memory_timeline.KIND, data


def _fit(count: int, scale: float, context: str) -> Made:
    run = load_spec(model="8b")
    points = tuple(
        Point(
            strategy="fsdp2",
            run=run,
            micro_batch_size=1 << size,
            sequence_length=1024 << length,
            device_bytes=int(scale * (1 << size) * (1 << length) * 2**30),
            usable_bytes=int(scale * 40 * 2**30),
            verdict=("fits", "fits", "tight", "does_not_fit")[min(3, (size + length) // 2)],
            step_seconds=1.0,
            exposed_communication_seconds=0.1,
            tokens_per_second_per_gpu=1000 * scale * (1 + size) / (1 + length / 9),
            hypothetical=False,
        )
        for size in range(min(count, 8))
        for length in range(min(count, 8))
    )
    return fit.KIND, fit.FitChart(strategy="fsdp2", context=context, points=points)


def _pareto(count: int, scale: float, context: str) -> Made:
    choices = [
        Choice(
            keys={
                "sharding.strategy": STRATEGIES[place],
                "training.micro_batch_size": 1 << place,
                "training.sequence_length": 131072,
            },
            gpu="rtx-pro-6000-blackwell-server",
            gpus=8 << place,
            verdict="fits",
            device_bytes=2**36,
            usable_bytes=2**37,
            headroom_bytes=2**36,
            step_seconds=1.0,
            low_seconds=0.9,
            high_seconds=1.2,
            exposed_communication_seconds=0.1,
            tokens_per_second=scale * rate * 1e4 * 1.9**place,
            model_flops_utilization=0.4,
            gpu_hours_per_million_tokens=1.0,
            price_usd_per_gpu_hour=None,
            price_source=None,
            usd_per_million_tokens=None,
            hypothetical=None,
        )
        for rate in (1.0, 0.7)
        for place in range(count)
    ]
    best, others = tuple(choices[:count]), tuple(choices[count:])
    data = pareto.ParetoChart(context=context, priced=False, frontier=best, others=others)
    return pareto.KIND, data


def _collective(count: int, scale: float, context: str) -> Made:
    curves = []
    for place in range(min(count, collective.MOST)):
        limit = scale * 4e11 / (1 + place)
        group = Group(name="world", ranks=8 << place, nodes=1 << place, ranks_per_node=8)
        rates = tuple(limit * size / (size + 2**24) for size in collective.SIZES)
        curves.append(
            collective.Curve(
                name=collective.SHOWN[place % 3],
                group=group,
                sizes=collective.SIZES,
                predicted=rates,
                measured=tuple(
                    (size, 0.9 * rate)
                    for size, rate in [*zip(collective.SIZES, rates, strict=True)][::4]
                ),
                limit=limit,
            )
        )
    data = collective.CollectiveChart(link="gcp-tcpxo-200", context=context, curves=tuple(curves))
    return collective.KIND, data


def _parity(count: int, scale: float, context: str) -> Made:
    scores = [
        Score(
            id=str(place),
            source_id=context,
            group={"source_id": context},
            metric=metric,
            measured=unit * scale * 1.5**place,
            predicted=unit * scale * 1.5**place * (0.9 + 0.05 * (place % 5)),
            low=unit * scale * 1.5**place * 0.8,
            high=unit * scale * 1.5**place * 1.3,
        )
        for metric, unit in PARITY
        for place in range(count)
    ]
    return parity.KIND, parity.data_parity(Backtest(rows=tuple(scores), skipped=()))


MADE: Final[dict[str, Callable[[int, float, str], Made]]] = {
    "memory": _memory,
    "scaling": _scaling,
    "links": _links,
    "timeline": _timeline,
    "memory-timeline": _memory_timeline,
    "fit": _fit,
    "breakdown": _breakdown,
    "pareto": _pareto,
    "collective": _collective,
    "parity": _parity,
}


@pytest.fixture
def made_up() -> Callable[[str, int, float, str], Made]:
    """Return a chart of a kind: of so many strategies, of such a scale, of a long name or a short."""
    return lambda name, count, scale, context: MADE[name](count, scale, context)
