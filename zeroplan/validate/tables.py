"""Prediction and truth as tables and in one sentence."""

from collections.abc import Iterator
from statistics import median
from typing import Final

from zeroplan.rows import Cell, Column, Table, significant
from zeroplan.units import GIB, MIB
from zeroplan.validate.record import Difference, Validation

__all__ = ["calls_table", "memory_table", "verdict"]

DIGITS: Final = 5
DECIMALS: Final = 3
"""A thousandth of a percent tells the slip of a tensor from a few bytes."""


def memory_table(answer: Validation) -> Table:
    """Return peaks by phase and what they are made of; those of small models in MiB."""
    lines = [each for each in answer.differences if each.kind in ("peak", "held")]
    large = max(each.measured for each in lines) >= GIB
    scale, unit = (GIB, "GiB") if large else (MIB, "MiB")
    return _table(f"Memory per GPU [{unit}], tensor bytes", lines, scale)


def calls_table(answer: Validation) -> Table:
    """Return the collectives of a step on one rank: how many, and their bytes in MiB."""
    lines = [each for each in answer.differences if each.kind in ("calls", "message")]
    return _table("Collectives per step [count and MiB]", lines, MIB)


def verdict(answer: Validation) -> Iterator[str]:
    """Say whether the prediction holds, what is furthest off and what ran."""
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
    ran = ", ".join(f"{name} {number}" for name, number in answer.versions)
    kind = "zeroplan's own module" if answer.model_class == "own" else "transformers' class"
    if answer.backend == "fake":
        yield f"Measured on fake tensors with {kind} ({ran})."
        return
    seconds = sorted(answer.truth.step_seconds)
    middle, low, high = (significant(each) for each in (median(seconds), seconds[0], seconds[-1]))
    yield f"Measured on {answer.inputs.cluster.gpus} processes over gloo with {kind} ({ran})."
    yield f"A step took {middle} s here ({low} to {high} s in {len(seconds)} steps)."


def _table(title: str, lines: list[Difference], scale: int) -> Table:
    return Table(
        title=title,
        columns=(
            Column(name="figure", is_text=True),
            Column(name="predicted"),
            Column(name="measured"),
            Column(name="difference", unit="%"),
        ),
        rows=tuple(
            (
                each.name,
                *(_shown(value, each, scale) for value in (each.predicted, each.measured)),
                _percent(each),
            )
            for each in lines
        ),
    )


def _shown(value: int, each: Difference, scale: int) -> str:
    return f"{value:,}" if each.kind == "calls" else significant(value / scale, DIGITS)


def _percent(each: Difference) -> Cell:
    error = each.error_fraction
    if not error:
        return None if error is None else "0"
    rounded = f"{error * 100:+.{DECIMALS}f}"
    return rounded if float(rounded) else f"< {10**-DECIMALS}"
