"""Charts of one strategy and of twelve, of long names, of tiny and of huge figures."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from zeroplan import load_spec, plan
from zeroplan.cli.plot import KINDS
from zeroplan.errors import SpecError
from zeroplan.estimation.choice import choose
from zeroplan.estimation.explain_case import case_of
from zeroplan.estimation.resolve import resolve
from zeroplan.report.charts import (
    fit,
    links,
    memory,
    memory_timeline,
    pareto,
    timeline,
)
from zeroplan.report.charts.picture import Chart, Kind, figure_of, svg_of
from zeroplan.report.charts.style import spread

Faults = Callable[[Kind, Chart], list[str]]

LONG = "an-organisation-with-a-long-name/and-a-model-whose-name-never-ends-405b-instruct"
Made = Callable[[str, int, float, str], tuple[Kind, Chart]]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6], ids=["tiny", "usual", "huge"])
@pytest.mark.parametrize("count", [1, 2, 12])
@pytest.mark.parametrize("name", KINDS)
def test_texts_stand_apart(
    name: str, count: int, scale: float, made_up: Made, faults: Faults
) -> None:
    assert faults(*made_up(name, count, scale, LONG)) == []


def test_memory_of_long_names(made_up: Made, faults: Faults) -> None:
    kind, data = made_up("memory", 12, 1.0, LONG)
    assert isinstance(data, memory.MemoryChart)
    for bar in data.bars:
        object.__setattr__(bar, "name", f"h100-sxm5-80gb, ethernet-100g, {bar.name}")
    assert faults(kind, data) == []


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
