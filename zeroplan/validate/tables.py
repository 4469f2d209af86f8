"""Prediction and truth as tables and in one sentence."""

from collections.abc import Iterator

from zeroplan.rows import Cell, Column, Table, significant
from zeroplan.units import GIB, MIB
from zeroplan.validate.record import Difference, Validation

__all__ = ["calls_table", "memory_table", "verdict"]


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
    limit = f"{significant(answer.tolerance * 100)} %"
    where = "inside" if answer.inside else "OUTSIDE"
    yield (
        f"Largest difference: {furthest.name}, {_percent(furthest)} %; "
        f"peaks and collectives are {where} the tolerance of {limit}."
    )
    ran = ", ".join(f"{name} {number}" for name, number in answer.versions)
    kind = "zeroplan's own module" if answer.model_class == "own" else "transformers' class"
    yield f"Measured on {answer.backend} tensors with {kind} ({ran})."


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
                each.predicted / (1 if each.kind == "calls" else scale),
                each.measured / (1 if each.kind == "calls" else scale),
                _percent(each),
            )
            for each in lines
        ),
    )


def _percent(each: Difference) -> Cell:
    """Three decimals: a thousandth of a percent tells a slip from an exact figure."""
    error = each.error_fraction
    return None if error is None else f"{error * 100:+.3f}" if error else "0"
