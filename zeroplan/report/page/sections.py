"""What the page tells, part by part."""

from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path

from zeroplan.estimation.record import Estimate
from zeroplan.estimation.tables import tables
from zeroplan.hardware import load_catalogue
from zeroplan.memory.device import FRAGMENTATION
from zeroplan.records import fields
from zeroplan.report.answer import LEGEND
from zeroplan.report.page.charts import (
    BEYOND,
    PARTS,
    SPENT,
    chart,
    legend,
    memory_bars,
    time_bars,
    waiting_bars,
)
from zeroplan.report.page.grid import AXES, Grid
from zeroplan.report.page.short import chosen
from zeroplan.report.words import defaults, precisions, trained
from zeroplan.rows import Column, Table, html, marked, readable, significant
from zeroplan.spec.run import Run
from zeroplan.timing.band import FASTER, SLOWER
from zeroplan.units import GIB

__all__ = ["assumed", "links", "memory", "paragraphs", "question", "reproduced", "sure", "time"]


def paragraphs(lines: Iterable[str], kind: str = "") -> str:
    """Return sentences as paragraphs."""
    named = f' class="{kind}"' if kind else ""
    return "".join(f"<p{named}>{marked(line)}</p>" for line in lines)


def question(answer: Estimate, model: str, gpu: str, link: str) -> str:
    """Return what was asked, in a sentence."""
    cluster, training = answer.inputs.cluster, answer.inputs.training
    per_node = min(cluster.gpus, cluster.gpus_per_node or cluster.gpus)
    nodes = cluster.gpus // per_node
    where = "in one node" if nodes == 1 else f"in {nodes:,} nodes of {per_node}, joined by {link}"
    micro_steps = training.gradient_accumulation_steps
    several = f", {micro_steps:,} micro-steps" if micro_steps > 1 else ""
    return (
        f"Does {model}, {answer.total_parameters:,} parameters, train on "
        f"{cluster.gpus:,} x {gpu} {where}, and how long is a step? Each GPU takes in "
        f"{training.micro_batch_size:,} x {training.sequence_length:,} tokens{several}; "
        f"checkpointing of activations: {training.activation_checkpointing}."
    )


def memory(answer: Estimate) -> str:
    """Return the chart and the tables of memory, and what each peak is made of."""
    bars = memory_bars(answer)
    usable = answer.estimates[0].memory.usable_bytes or 0
    longest = max(sum(part.value for part in bar.parts) for bar in bars)
    told = (
        f"Memory per GPU against {readable(usable, 'B')} usable: "
        f"{'; '.join(f'{bar.name} {bar.note}' for bar in bars)}."
    )
    picture = chart(
        bars,
        min(max(longest, 1.1 * usable), BEYOND * usable),
        told,
        limit=usable,
        limit_name=f"{readable(usable, 'B')} usable",
    )
    cut = " Bars that end in » are longer than shown." if longest > BEYOND * usable else ""
    shown = [table for table in tables(answer) if "emory" in table.title]
    return (
        f"<figure>{picture}<figcaption>{legend(PARTS)}What the fullest GPU holds when it holds "
        f"most.{cut}</figcaption></figure>{''.join(map(_scrolled, shown))}"
        f"{paragraphs((LEGEND, *precisions(answer)))}{_scrolled(_peaks(answer))}"
    )


def time(answer: Estimate) -> str:
    """Return the chart and the table of a step."""
    bars = time_bars(answer)
    told = f"Step time: {'; '.join(f'{bar.name} {bar.note}' for bar in bars)}."
    longest = max((bar.band[1] for bar in bars if bar.band), default=1.0)
    shown = [table for table in tables(answer) if "emory" not in table.title]
    kinds = {key: word for key, word in SPENT.items() if key != "host" or answer.inputs.offloads}
    return (
        f"<figure>{chart(bars, longest, told)}<figcaption>{legend(kinds)}Communication that hides "
        "behind computing costs nothing and is not shown.</figcaption></figure>"
        f"{''.join(map(_scrolled, shown))}"
    )


def links(grid: Grid) -> str:
    """Return what other links between the nodes would mean."""
    bars, strategy = waiting_bars(grid), grid.axes[AXES[0]][grid.asked[0]]
    compared = _compared(grid)
    told = f"Waiting of {strategy}: {'; '.join(f'{bar.name} {bar.note}' for bar in bars)}."
    return (
        f"<p>Share of a step that {escape(strategy)} waits for communication, all else as asked."
        f"</p><figure>{chart(bars, 1.0, told)}</figure><p>{escape(compared)}</p>{_scrolled(_link_table(grid))}"
    )


def sure(answer: Estimate) -> str:
    """Return how far off the answer may be, and what it rests on."""
    each = chosen(answer)
    low, high = each.time.low_seconds, each.time.high_seconds
    lines = []
    if low is not None and high is not None:
        lines.append(
            f"Time: a step of {each.strategy} should take between {significant(low)} and "
            f"{significant(high)} s in eight cases of ten. At the least the band is "
            f"{100 * FASTER.value:.0f} % below and {100 * SLOWER.value:.0f} % above the figure: "
            f"{FASTER.source}. Prices that nobody measured widen it."
        )
    lines.append(
        f"Memory: what tensors take follows from the order of the framework's events. What the "
        f"allocator keeps beyond them is the uncertain part, here {100 * FRAGMENTATION.value:.0f} "
        f"% of a pool, from {FRAGMENTATION.source}. A verdict is tight where the limit lies within "
        "that uncertainty."
    )
    kinds = Counter(entry.kind for entry in answer.assumptions)
    words = {
        "datasheet": "from datasheets",
        "measured": "measured",
        "fitted": "fitted to measurements",
        "assumed": "assumed",
    }
    counted = ", ".join(f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind])  # type: ignore[index]
    lines.append(f"Of the {len(answer.assumptions)} figures below {counted}.")
    return paragraphs((*lines, *answer.hypothetical))


def assumed(answer: Estimate, asked: Run, profiles: Path | None) -> str:
    """Return every figure with its source, the defaults chosen and the notes."""
    sources = load_catalogue(profiles).sources()
    rows = tuple(
        (
            entry.name,
            readable(entry.value, entry.unit)
            if isinstance(entry.value, int | float)
            else entry.value or "not known",
            entry.kind,
            sources[entry.source].title if entry.source in sources else entry.source,
        )
        for entry in answer.assumptions
    )
    heads = ("figure", "value", "kind", "source")
    columns = tuple(Column(name=head, is_text=True) for head in heads)
    told = Table(title="Figures that the answer rests on", columns=columns, rows=rows)
    parts = [_scrolled(told), _references(answer, profiles)]
    notes = [note for note in answer.notes if note not in answer.hypothetical]
    for title, lines in (
        ("Defaults chosen", [*defaults(answer, asked)]),
        ("Notes", [*trained(answer), *notes]),
    ):
        if lines:
            items = "".join(f"<li>{marked(line)}</li>" for line in lines)
            parts.append(f"<h3>{title}</h3><ul>{items}</ul>")
    return "".join(parts)


def reproduced(commands: Iterable[str], spec: str) -> str:
    """Return the commands and the spec file that give this answer again."""
    shown = "\n".join(commands)
    return (
        f'<pre tabindex="0" role="region" aria-label="Commands"><code>{escape(shown)}</code></pre>'
        "<p>Or with every default written out, for <code>--spec run.toml</code>:</p>"
        f'<pre tabindex="0" role="region" aria-label="run.toml"><code>{escape(spec)}</code></pre>'
    )


def _peaks(answer: Estimate) -> Table:
    """Return what is live at the peak of each strategy. [GiB]"""
    peaks = [each.memory.peak_breakdown_bytes for each in answer.estimates]
    sizes = {
        entry.name: [getattr(peak, entry.name) for peak in peaks] for entry in fields(peaks[0])
    }
    sizes["total"] = [each.memory.peak_allocated_bytes for each in answer.estimates]
    return Table(
        title="What each peak is made of [GiB]",
        columns=(
            Column(name="part", is_text=True),
            *(Column(name=each.strategy) for each in answer.estimates),
        ),
        rows=tuple(
            (name.replace("_", " "), *(size / GIB for size in row))
            for name, row in sizes.items()
            if any(row)
        ),
    )


def _compared(grid: Grid) -> str:
    """Say how much longer or shorter a step is on other links."""
    places, steps = grid.beside("cluster.link"), grid.figures["step_seconds"]
    asked = grid.axes["cluster.link"][grid.asked[2]]
    here = steps[places[asked]]
    times = [
        f"{significant(there / here)} times as long on {grid.names[link]}"
        for link, place in places.items()
        if here and link != asked and (there := steps[place]) is not None
    ]
    if not times:
        return ""
    strategy = grid.axes[AXES[0]][grid.asked[0]]
    return f"Compared with {grid.names[asked]}, a step of {strategy} is {', '.join(times)}."


def _link_table(grid: Grid) -> Table:
    """Return the step time of every strategy on every link. [s]"""
    strategies, asked = grid.axes[AXES[0]], grid.asked
    rows = tuple(
        (
            grid.names[link],
            *(
                grid.figures["step_seconds"][grid.place((row, asked[1], column, *asked[3:]))]
                for row in range(len(strategies))
            ),
        )
        for column, link in enumerate(grid.axes["cluster.link"])
    )
    return Table(
        title="Step time by link between nodes [s]",
        columns=(
            Column(name="link", is_text=True),
            *(Column(name=strategy) for strategy in strategies),
        ),
        rows=rows,
    )


def _references(answer: Estimate, profiles: Path | None) -> str:
    """Return where the cited sources are found."""
    sources = load_catalogue(profiles).sources()
    used = dict.fromkeys(entry.source for entry in answer.assumptions if entry.source in sources)
    items = "".join(
        f'<li><a href="{escape(sources[name].url)}">{marked(sources[name].title)}</a>'
        f"{escape(f', {sources[name].version}') if sources[name].version else ''}</li>"
        for name in used
        if sources[name].url
    )
    return f"<h3>Sources</h3><ul>{items}</ul>" if items else ""


def _scrolled(table: Table) -> str:
    """Return a table that a narrow screen can push sideways, by keyboard too."""
    title = escape(table.title)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{html(table)}</div>'
    )
