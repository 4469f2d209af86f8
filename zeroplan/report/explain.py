"""An explanation for a person: what is asked, the peak, its terms and what would change them."""

from collections.abc import Iterator
from dataclasses import replace

from zeroplan.estimation.explain_record import Explanation
from zeroplan.estimation.explain_tables import moment_words, tables
from zeroplan.report.terminal import PROSE_WIDTH, Page, prose, table_text
from zeroplan.rows import significant
from zeroplan.units import GIB

__all__ = ["explanation_text"]


def explanation_text(told: Explanation, on: Page, *, wide: bool = False) -> str:
    """Return the verdict in sentences, then every table, then the notes."""
    sheet = on if wide else replace(on, width=min(on.width, PROSE_WIDTH))
    parts = [prose(_headlines(told), on)]
    parts += [table_text(table, sheet) for table in tables(told, wide=wide)]
    if told.notes:
        parts.append(prose(("Notes", *(f"- {line}" for line in told.notes)), on))
    return "\n".join(parts)


def _headlines(told: Explanation) -> Iterator[str]:
    memory, time = told.estimate.memory, told.estimate.time
    cluster = told.inputs.cluster
    yield (
        f"{told.inputs.model.source} on {cluster.gpus:,} x {cluster.gpu}, "
        f"{told.estimate.strategy} ({told.chosen})."
    )
    peak = (
        f"Tensors peak at {_gib(memory.peak_tensor_bytes)} GiB in {moment_words(told.peak)}, "
        f"{_gib(memory.peak_allocated_bytes)} GiB with workspaces"
    )
    if memory.device_bytes is not None and memory.usable_bytes is not None:
        peak += (
            f"; the device holds {_gib(memory.device_bytes)} of {_gib(memory.usable_bytes)} GiB: "
            f"it {_VERDICTS[told.estimate.verdict]}"
        )
    yield f"{peak}."
    if time.step_seconds is not None:
        yield (
            f"A step takes {significant(time.step_seconds)} s, bound by "
            f"{(time.bound_by or 'an unknown part').replace('_', ' ')}."
        )


def _gib(size: int) -> str:
    return significant(size / GIB)


_VERDICTS = {"fits": "fits", "tight": "is tight", "does_not_fit": "does not fit"}
