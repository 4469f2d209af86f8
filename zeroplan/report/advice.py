"""Why a step is slow, and what makes a run fit, for a person."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from zeroplan.estimation.advice_tables import all_tight, fit_tables, slow_tables
from zeroplan.estimation.break_even import HIDDEN, is_hidden
from zeroplan.estimation.make_it_fit import MakeItFit
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.why_slow import Cause, WhySlow
from zeroplan.report.terminal import PROSE_WIDTH, Page, prose, table_text
from zeroplan.rows import Table, significant
from zeroplan.spec.run import Run
from zeroplan.units import GIB

__all__ = ["fit_text", "slow_text"]

CAUSES: Final[dict[Cause, str]] = {
    "compute": "matmuls and attention",
    "memory_bandwidth": "kernels that wait for memory, copies, and slowing beside collectives",
    "host": "gaps in which the GPU has nothing to do until the host issues it",
    "communication": "waiting for communication",
    "offload": "waiting for what lives off the GPU",
}


def slow_text(told: WhySlow, on: Page) -> str:
    """Return the cause in sentences, then every table, then the notes."""
    return _page(_slow(told), slow_tables(told), told.notes, on)


def fit_text(told: MakeItFit, on: Page) -> str:
    """Return whether it fits and what would make it, then the table, then the notes."""
    return _page(_fit(told), fit_tables(told), told.notes, on)


def _page(
    sentences: Iterable[str], tables: Iterable[Table], notes: tuple[str, ...], on: Page
) -> str:
    sheet = replace(on, width=min(on.width, PROSE_WIDTH))
    parts = [prose(sentences, on), *(table_text(table, sheet) for table in tables)]
    if notes:
        parts.append(prose(("Notes", *(f"- {line}" for line in notes)), on))
    return "\n".join(parts)


def _asked(inputs: Run, estimate: StrategyEstimate, chosen: str) -> str:
    cluster = inputs.cluster
    return f"{inputs.model.source} on {cluster.gpus:,} x {cluster.gpu}, {estimate.strategy} ({chosen})."


def _slow(told: WhySlow) -> Iterator[str]:
    time = told.estimate.time
    yield _asked(told.inputs, told.estimate, told.chosen)
    step = time.step_seconds or 0.0
    largest = max(told.parts, key=lambda part: part.seconds)
    share = "most of it" if largest.seconds > step / 2 else "the largest part"
    yield (
        f"A step takes {significant(step)} s; {share}, {significant(largest.seconds)} s, is "
        f"{CAUSES[told.cause]}."
    )
    waits = time.exposed_communication_seconds or 0.0
    if not told.collectives:
        yield "It sends nothing."
    elif is_hidden(told.estimate):
        yield f"Communication is hidden: it waits {significant(waits)} s for it."
    else:
        percent = significant(100 * waits / step) if step else "0"
        yield (
            f"It waits {significant(waits)} s ({percent} %) for communication, which counts as hidden "
            f"below {100 * HIDDEN:.0f} %."
        )
        if told.tokens is not None and told.tokens.needed is None:
            yield "No micro-batch hides it: every one sends as it computes."
        if told.bandwidth is not None and told.bandwidth.needed is None:
            yield "No bandwidth there hides it: latencies, or the other links, bound it."


def _fit(told: MakeItFit) -> Iterator[str]:
    memory = told.estimate.memory
    yield _asked(told.inputs, told.estimate, told.chosen)
    device, usable = _gib(memory.device_bytes or 0), _gib(memory.usable_bytes or 0)
    if told.estimate.verdict == "tight" and told.fits:
        yield f"It may fit: {device} GiB needed, {usable} usable, within the limit's uncertainty."
    elif told.fits:
        room = _gib(memory.headroom_bytes or 0)
        yield f"It fits already: {device} of {usable} GiB, {room} GiB left."
    elif told.missing_bytes:
        yield f"It needs {device} of {usable} GiB: {_gib(told.missing_bytes)} GiB are missing."
    else:
        yield "The GPU holds it, but the host memory of a node does not."
    if told.nearest is not None:
        missing = _gib(max(0, told.nearest_missing_bytes or 0))
        yield f"None of {told.tried} changes and pairs makes it fit; the nearest lacks {missing} GiB."
    elif told.changes:
        few = (
            "none fits for certain, and of those within the uncertainty of the limit these"
            if all_tight(told.changes)
            else "these"
        )
        yield f"{told.tried} changes and pairs were tried; {few} cost least GPU time per token."


def _gib(size: int) -> str:
    return significant(size / GIB)
