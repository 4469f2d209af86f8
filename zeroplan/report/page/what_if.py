"""The part of the page that answers other questions: controls, and what they say at first."""

from html import escape
from typing import Final

from zeroplan.estimation.record import Estimate
from zeroplan.report.page.charts import BEYOND, SPENT, Bar, Part, chart, legend
from zeroplan.report.page.cost import cost_fields, cost_table
from zeroplan.report.page.grid import AXES, Grid
from zeroplan.rows import Column, readable, significant, text
from zeroplan.units import GIB

__all__ = ["what_if"]

LABELS: Final = {
    "cluster.gpus": "GPUs",
    "training.micro_batch_size": "Micro-batch [sequences]",
    "training.sequence_length": "Sequence length [tokens]",
}

COLUMNS: Final = {
    "verdict": Column(name="verdict", is_text=True),
    "device": Column(name="device", unit="GiB"),
    "margin": Column(name="+/-", unit="GiB"),
    "peak": Column(name="peak of tensors", unit="GiB"),
    "step": Column(name="step", unit="s"),
    "band": Column(name="eight steps in ten", unit="s"),
    "waits": Column(name="waits", unit="% of step"),
    "speed": Column(name="tokens/s /GPU"),
    "mfu": Column(name="MFU", unit="%"),
}
"""Of the table, by the name under which `page.js` fills them."""

HOLDS: Final = {"parameters": "peak of tensors", "rest": "allocator, CUDA context, NCCL"}
USED: Final = {
    "compute": "computes, host included",
    "waits": SPENT["waits"],
    "band": SPENT["band"],
}


def what_if(answer: Estimate, grid: Grid) -> str:
    """Return controls, verdict, tables and charts; `page.js` keeps them in step."""
    places = grid.beside(AXES[0])
    memory = chart(
        [_memory_bar(grid, strategy, place) for strategy, place in places.items()],
        BEYOND * grid.usable_bytes,
        "Memory of the device under each strategy, as in the table above.",
        name="what-if-memory",
        limit=grid.usable_bytes,
        limit_name=f"{readable(grid.usable_bytes, 'B')} usable",
    )
    highs = (grid.figures["high_seconds"][place] or 0.0 for place in places.values())
    time = chart(
        [_time_bar(grid, strategy, place) for strategy, place in places.items()],
        max(highs) or 1.0,
        "Step time under each strategy, as in the table above.",
        name="what-if-time",
    )
    return (
        f"{_form(answer, grid)}"
        '<p class="verdict" id="what-if-verdict" role="status"></p>'
        f"{_table(grid, places)}{cost_table(grid)}"
        f"<h3>Memory of the device</h3><figure>{memory}<figcaption>{legend(HOLDS)}</figcaption>"
        f"</figure><h3>Step time</h3><figure>{time}<figcaption>{legend(USED)}</figcaption></figure>"
    )


def _form(answer: Estimate, grid: Grid) -> str:
    strategies = "".join(f"<option>{escape(each)}</option>" for each in grid.axes[AXES[0]])
    links = "".join(
        f'<option value="{place}"{" selected" * (place == grid.asked[2])}>'
        f"{escape(grid.names[link])}</option>"
        for place, link in enumerate(grid.axes["cluster.link"])
    )
    return (
        '<form id="what-if-form" aria-label="What if">'
        f"{''.join(_slider(grid, key, label) for key, label in LABELS.items())}"
        '<div><label for="choose-link">Link between nodes</label>'
        f'<select id="choose-link" data-key="cluster.link">{links}</select>'
        '<p class="told" id="told-link" hidden>One node holds these GPUs: no such link is used.</p>'
        "</div>"
        '<div><label for="choose-strategy">Strategy</label>'
        f'<select id="choose-strategy" data-key="{AXES[0]}">'
        f'<option value="" selected>the fastest that fits</option>{strategies}</select></div>'
        f"{cost_fields(answer)}"
        '<div><button type="reset">Back to the question</button></div></form>'
    )


def _slider(grid: Grid, key: str, label: str) -> str:
    name, values = key.rpartition(".")[2], grid.axes[key]
    place = grid.asked[AXES.index(key)]
    shown = f"{values[place]:,}"
    return (
        f'<div><label for="choose-{name}">{escape(label)}</label><output for="choose-{name}" aria-live="off">{shown}</output>'
        f'<input type="range" id="choose-{name}" data-key="{key}" min="0" max="{len(values) - 1}" '
        f'value="{place}" aria-valuetext="{shown}"></div>'
    )


def _table(grid: Grid, places: dict[str, int]) -> str:
    columns = (Column(name="strategy", is_text=True), *COLUMNS.values())
    head = "".join(
        f'<th scope="col"{" class=words" * column.is_text}>{escape(column.title)}</th>'
        for column in columns
    )
    rows = (
        f'<tr data-row="{escape(strategy)}"><th scope="row">{escape(strategy)}</th>'
        f"{_cells(grid, place)}</tr>"
        for strategy, place in places.items()
    )
    title = "Every strategy under these conditions"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<table id="what-if-table"><caption>{title}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cells(grid: Grid, place: int) -> str:
    at = {name: values[place] for name, values in grid.figures.items()}
    step, waits = at["step_seconds"], at["exposed_communication_seconds"]
    ends = (at["low_seconds"], at["high_seconds"])
    shown = {
        "verdict": _words(grid.verdicts[place]),
        "device": _scaled(at["device_bytes"], GIB),
        "margin": _scaled(at["half_band_bytes"], GIB),
        "peak": _scaled(at["peak_allocated_bytes"], GIB),
        "step": step,
        "band": "-".join(significant(end) for end in ends if end is not None) or None,
        "waits": 100 * waits / step if step and waits is not None else None,
        "speed": at["tokens_per_second_per_gpu"],
        "mfu": _scaled(at["model_flops_utilization"], 0.01),
    }
    return "".join(
        f'<td data-cell="{name}"{" class=words" * column.is_text}>{escape(text(shown[name]))}</td>'
        for name, column in COLUMNS.items()
    )


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


def _words(verdict: str | None) -> str:
    return "not possible" if verdict is None else verdict.replace("_", " ")


def _memory_bar(grid: Grid, strategy: str, place: int) -> Bar:
    device, peak = (
        grid.figures[name][place] or 0 for name in ("device_bytes", "peak_allocated_bytes")
    )
    return Bar(
        name=strategy,
        note=f"{readable(device, 'B')}, {_words(grid.verdicts[place])}",
        parts=tuple(
            Part(kind=kind, value=size, told=f"{HOLDS[kind]}: {readable(size, 'B')}")
            for kind, size in (("parameters", peak), ("rest", device - peak))
        ),
    )


def _time_bar(grid: Grid, strategy: str, place: int) -> Bar:
    step, waits, low, high = (
        grid.figures[name][place] or 0.0
        for name in ("step_seconds", "exposed_communication_seconds", "low_seconds", "high_seconds")
    )
    return Bar(
        name=strategy,
        note=f"{significant(step)} s ({significant(low)} to {significant(high)})",
        parts=tuple(
            Part(kind=kind, value=seconds, told=f"{USED[kind]}: {significant(seconds)} s")
            for kind, seconds in (("compute", step - waits), ("waits", waits))
        ),
        band=(low, high),
        faint=grid.verdicts[place] == "does_not_fit",
    )
