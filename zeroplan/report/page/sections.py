"""What the page tells, part by part."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from zeroplan.estimation.record import Assumption, Estimate
from zeroplan.estimation.tables import tables
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.read import Source
from zeroplan.records import fields, replace
from zeroplan.report.page.charts import (
    BEYOND,
    PARTS,
    SPENT,
    chart,
    legend,
    memory_bars,
    time_bars,
)
from zeroplan.report.page.parts import paragraphs, scrolled
from zeroplan.report.words import LEGEND, defaults, precisions, trained
from zeroplan.rows import Column, Table, marked, readable
from zeroplan.spec.run import Run
from zeroplan.units import GIB

__all__ = ["assumed", "memory", "question", "reproduced", "time"]


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
    shown = [_named(table) for table in tables(answer) if "emory" in table.title]
    return (
        f"<figure>{picture}<figcaption>{legend(PARTS)}What the fullest GPU holds when it holds "
        f"most.{cut}</figcaption></figure>{''.join(map(scrolled, shown))}"
        f"{paragraphs((LEGEND, *precisions(answer)))}{scrolled(_peaks(answer))}"
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
        f"{''.join(map(scrolled, shown))}"
    )


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
            _source(entry, sources),
        )
        for entry in answer.assumptions
    )
    heads = ("figure", "value", "kind", "source")
    columns = tuple(Column(name=head, is_text=True) for head in heads)
    told = Table(title="Figures that the answer rests on", columns=columns, rows=rows)
    parts = [scrolled(told), _references(answer, profiles)]
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


def _named(table: Table) -> Table:
    """Return a table that calls optimizer states as the charts do, whichever optimizer it is."""
    columns = tuple(
        replace(column, name=PARTS["optimizer"]) if column.name == "Adam states" else column
        for column in table.columns
    )
    return replace(table, columns=columns)


def _peaks(answer: Estimate) -> Table:
    """Return what is live at the peak of each strategy. [GiB]"""
    peaks = [each.memory.peak_breakdown_bytes for each in answer.estimates]
    sizes = {
        entry.name: [getattr(peak, entry.name) for peak in peaks] for entry in fields(peaks[0])
    }
    optimizer = PARTS["optimizer"]
    sizes["total"] = [each.memory.peak_allocated_bytes for each in answer.estimates]
    return Table(
        title="What each peak is made of [GiB]",
        columns=(
            Column(name="part", is_text=True),
            *(Column(name=each.strategy) for each in answer.estimates),
        ),
        rows=tuple(
            (
                optimizer if name == "optimizer" else name.replace("_", " "),
                *(size / GIB for size in row),
            )
            for name, row in sizes.items()
            if any(row)
        ),
    )


def _source(entry: Assumption, sources: Mapping[str, Source]) -> str:
    """Say where a figure comes from; a judgement's note is where the profile is shown."""
    if entry.source not in sources:
        return entry.source
    title, (profile, named, _) = sources[entry.source].title, entry.name.partition(": ")
    if sources[entry.source].url or not named:
        return title
    return f"{title.partition(';')[0]}; `zeroplan hardware show {profile}` shows its note"


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
