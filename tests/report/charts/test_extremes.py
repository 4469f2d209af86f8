"""Charts of one strategy and of twelve, of long names, of tiny and of huge figures."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from zeroplan import load_spec, plan
from zeroplan.errors import SpecError
from zeroplan.estimation.choice import choose
from zeroplan.estimation.explain_case import case_of
from zeroplan.estimation.record import Verdict
from zeroplan.estimation.resolve import resolve
from zeroplan.estimation.why_slow import Part
from zeroplan.report.charts import (
    breakdown,
    fit,
    links,
    memory,
    memory_timeline,
    pareto,
    scaling,
    timeline,
)
from zeroplan.report.charts.picture import Chart, Kind, figure_of, svg_of
from zeroplan.report.charts.style import PARTS, spread

Faults = Callable[[Kind, Chart], list[str]]

LONG = "an-organisation-with-a-long-name/and-a-model-whose-name-never-ends-405b-instruct"
NAMES = ["ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp", "fsdp1", "fsdp1-grad-op"]
NAMES += ["torch-zero1", "zero0", "none", "hybrid-shard-zero2"]
SCALES = pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6], ids=["tiny", "usual", "huge"])
COUNTS = pytest.mark.parametrize("count", [1, 2, 12])


def _bars(count: int, scale: float) -> Iterator[memory.Bar]:
    for place, name in enumerate(NAMES[:count]):
        parts = {part: int((place + 1) * scale * 2**30) for part in PARTS}
        verdict: Verdict = "fits" if place < count / 2 else "does_not_fit"
        yield memory.Bar(
            name=name,
            parts=parts,
            device_bytes=sum(parts.values()),
            usable_bytes=int(scale * 40 * 2**30),
            verdict=verdict,
        )


@COUNTS
@SCALES
def test_memory(count: int, scale: float, faults: Faults) -> None:
    data = memory.MemoryChart(context=LONG, bars=tuple(_bars(count, scale)))
    assert faults(memory.KIND, data) == []


def test_memory_of_long_names(faults: Faults) -> None:
    bars = tuple(_bars(12, 1.0))
    for bar in bars:
        object.__setattr__(bar, "name", f"h100-sxm5-80gb, ethernet-100g, {bar.name}")
    assert faults(memory.KIND, memory.MemoryChart(context=LONG, bars=bars)) == []


@COUNTS
@SCALES
def test_scaling(count: int, scale: float, faults: Faults) -> None:
    lines = tuple(
        scaling.Line(
            strategy=name,
            gpus=scaling.GPUS,
            device_bytes=tuple(int(scale * 2**30 * (9 + 80 / gpus)) for gpus in scaling.GPUS),
            step_seconds=tuple(scale * (1 + place / 50) for _ in scaling.GPUS),
        )
        for place, name in enumerate(NAMES[:count])
    )
    data = scaling.ScalingChart(context=LONG, usable_bytes=int(scale * 80 * 2**30), lines=lines)
    assert faults(scaling.KIND, data) == []


@COUNTS
@SCALES
def test_links(count: int, scale: float, faults: Faults) -> None:
    names = ("nvlink5", "ib-xdr800", "gcp-tcpxo-200", "ethernet-100g", "ethernet-1g")
    found = tuple(
        links.Served(
            strategy=strategy,
            link=link,
            hypothetical=not step,
            step_seconds=scale * (1 + step) ** 3,
            waiting=0.2 * step,
        )
        for strategy in NAMES[:count]
        for step, link in enumerate(names)
    )
    assert faults(links.KIND, links.LinksChart(context=LONG, links=names, found=found)) == []


@COUNTS
@SCALES
def test_breakdown(count: int, scale: float, faults: Faults) -> None:
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
        for place, name in enumerate(NAMES[:count])
    )
    data = breakdown.BreakdownChart(context=LONG, steps=steps)
    assert faults(breakdown.KIND, data) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "gpt2", "gpus": 1, "strategy": "none"},
        {"model": "405b", "gpus": 1024, "strategy": "fsdp2", "gradient_accumulation_steps": 2},
        {"model": "8b", "gpus": 8, "strategy": "zero3", "offload_optimizer": "cpu"},
    ],
    ids=str,
)
def test_both_timelines(keys: dict[str, object], faults: Faults) -> None:
    chosen = choose(resolve(load_spec(**keys)))
    case = case_of(chosen.question, chosen.estimate, None)
    assert faults(timeline.KIND, timeline.data_timeline(case)) == []
    assert faults(memory_timeline.KIND, memory_timeline.data_memory_timeline(case)) == []


def test_a_step_of_many_micro_steps_makes_a_light_picture() -> None:
    asked = load_spec(model="8b", gpus=8, strategy="fsdp2", gradient_accumulation_steps=16)
    chosen = choose(resolve(asked))
    data = memory_timeline.data_memory_timeline(case_of(chosen.question, chosen.estimate, None))
    assert len(data.lives) > 4000
    figure = figure_of(memory_timeline.KIND, data)
    assert len(svg_of(figure, data.title, data.alt)) < 1_000_000
    (ax,) = figure.axes
    paths = [path for drawn in ax.collections for path in drawn.get_paths()]
    top = max(np.asarray(path.vertices)[:, 1].max() for path in paths)
    assert top * 2**30 == pytest.approx(data.peak_bytes)


def test_fit_where_nothing_does(faults: Faults) -> None:
    values = {"model.source": "405b", "cluster.gpus": 8, "sharding.strategy": "fsdp2"}
    batches = {"training.micro_batch_size": [1, 2], "training.sequence_length": [4096, 8192]}
    data = fit.data_fit({**values, **batches})
    assert data.title.startswith("fsdp2: nothing fits; the smallest batch needs 1,0")
    assert faults(fit.KIND, data) == []


def test_pareto_of_one_plan(faults: Faults) -> None:
    found = plan(model="8b", gpus=16, strategy="fsdp2", micro_batch_size=1)
    data = pareto.data_pareto(found, LONG)
    assert " on 16 GPUs is the best at " in data.title
    assert " · fsdp2 · " in data.context
    assert faults(pareto.KIND, data) == []


def test_links_of_one_node_are_refused() -> None:
    with pytest.raises(SpecError, match=r"cluster.gpus = 8: one node"):
        links.data_links({"model.source": "8b", "cluster.gpus": 8, "sharding.strategy": "ddp"})


def test_labels_move_apart_and_keep_their_order() -> None:
    placed = spread([0.5, 0.5, 0.52, 0.99], 0.1, 0.0, 1.0)
    assert sorted(placed) == placed
    assert all(b - a >= 0.1 - 1e-12 for a, b in pairwise(placed))
    assert max(placed) <= 1.0
    assert spread([], 0.1, 0.0, 1.0) == []
