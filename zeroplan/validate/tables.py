"""Prediction and run as tables and in one sentence."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from zeroplan.estimation.record import Verdict
from zeroplan.rows import Cell, Column, Table, readable, significant
from zeroplan.units import GIB, MIB
from zeroplan.validate.measurement import RunRecord
from zeroplan.validate.validation import Difference, Validation

__all__ = ["tables", "verdict"]

DIGITS: Final = 5
DECIMALS: Final = 3
"""A thousandth of a percent tells the slip of a tensor from a few bytes."""

RAN: Final = ("torch", "transformers", "cuda", "rocm", "nccl")
"""Versions that a reader wants to see."""

FITS: Final[dict[Verdict, str]] = {
    "fits": "that it fits",
    "tight": "that it is tight",
    "does_not_fit": "that it does not fit",
}


def tables(answer: Validation) -> Iterator[Table]:
    """Yield memory, times and collectives, as far as there are any."""
    lines = answer.differences
    memory = [each for each in lines if each.kind in ("peak", "held", "memory")]
    if memory:
        large = max(each.measured for each in memory) >= GIB
        scale, unit = (GIB, "GiB") if large else (MIB, "MiB")
        what = "allocated" if answer.record.backend == "cuda" else "tensor bytes"
        yield _table(f"Memory per GPU [{unit}], {what}", memory, scale)
    seconds = [each for each in lines if each.kind == "seconds"]
    if seconds:
        yield _table("Time per step [s]", seconds, 1)
    calls = [each for each in lines if each.kind in ("calls", "message")]
    if calls:
        yield _table("Collectives per step [count and MiB]", calls, MIB)


def verdict(answer: Validation) -> Iterator[str]:
    """Say whether the prediction holds, what is furthest off and what ran."""
    if answer.truth is None:
        yield from _out_of_memory(answer)
        return
    furthest = answer.largest
    where = "inside" if answer.inside else "outside"
    limit = f"{where} the tolerance of {significant(answer.tolerance * 100)} %"
    if furthest.error_fraction:
        told = f"Largest difference: {furthest.name}, {_percent(furthest)} %"
    elif furthest.error_fraction is None:
        told = f"Predicted, but not there: {furthest.name}"
    else:
        told = "Every peak and every collective is equal to the byte"
    yield f"{told}; {limit}."
    yield from _bands(answer.differences)
    yield f"Measured {_where(answer.record)}."
    seconds = sorted(answer.truth.step_seconds)
    if seconds:
        middle, low, high = (
            significant(each) for each in (median(seconds), seconds[0], seconds[-1])
        )
        yield f"A step took {middle} s here ({low} to {high} s in {len(seconds)} steps)."


def _out_of_memory(answer: Validation) -> Iterator[str]:
    size = answer.record.outcome.requested_bytes
    what = "an allocation" if size is None else f"an allocation of {readable(size, 'B')}"
    yield f"Memory ran out: {what} failed. Predicted was {FITS[answer.predicted_verdict]}."
    yield f"Measured {_where(answer.record)}."


def _bands(lines: Sequence[Difference]) -> Iterator[str]:
    for word, inside in (("Inside", True), ("Outside", False)):
        names = [each.name for each in lines if each.in_band is inside]
        if names:
            yield f"{word} the band of the prediction: {', '.join(names)}."


def _where(record: RunRecord) -> str:
    """Say on what, with what, and in which versions."""
    gpus = record.inputs.cluster.gpus
    ran = ", ".join(f"{n} {record.versions[n]}" for n in RAN if n in record.versions)
    kind = "zeroplan's own module" if record.model_class == "own" else "transformers' class"
    where = {
        "fake": "on fake tensors",
        "cpu": f"on {gpus} processes over gloo",
        "cuda": f"on {gpus} x {record.machine.gpu} over NCCL",
    }[record.backend]
    if record.pretended:
        where = f"on one {record.machine.gpu or 'CPU'} as a rank of {gpus}"
    return f"{where} with {kind} ({ran})"


def _table(title: str, lines: list[Difference], scale: int) -> Table:
    banded = any(each.in_band is not None for each in lines)
    band = (Column(name="band", is_text=True),) if banded else ()
    return Table(
        title=title,
        columns=(
            Column(name="figure", is_text=True),
            Column(name="predicted"),
            Column(name="measured"),
            Column(name="difference", unit="%"),
            *band,
        ),
        rows=tuple(
            (
                each.name,
                *(_shown(value, each, scale) for value in (each.predicted, each.measured)),
                _percent(each),
                *([_band(each, scale)] if banded else []),
            )
            for each in lines
        ),
    )


def _shown(value: float, each: Difference, scale: int) -> str:
    return f"{value:,.0f}" if each.kind == "calls" else significant(value / scale, DIGITS)


def _band(each: Difference, scale: int) -> str:
    if each.low is None or each.high is None:
        return ""
    return f"{significant(each.low / scale)} to {significant(each.high / scale)}"


def _percent(each: Difference) -> Cell:
    error = each.error_fraction
    if not error:
        return None if error is None else "0"
    rounded = f"{error * 100:+.{DECIMALS}f}"
    return rounded if float(rounded) else f"< {10**-DECIMALS}"
