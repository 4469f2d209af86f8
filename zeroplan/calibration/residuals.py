"""How far off a fitted link is, on its own points and on those it was not fitted to."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from zeroplan.calibration.fit import Constant, Fitted, constants, fit
from zeroplan.calibration.sweeps import CLASSES, Sweep, file_of, publisher_of
from zeroplan.hardware import Link
from zeroplan.records import dataclass

__all__ = ["Errors", "HeldOut", "errors_of", "held_out", "ninth_in_ten"]

NINE_TENTHS: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far off collectives of one class of sizes are: |predicted / measured - 1|. [1]"""

    collective: str
    size_class: str
    points: int
    median: float
    p90: float
    band: float
    """The greater of predicted / measured and its inverse, less 1, at the ninetieth percentile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors of fits that each left a part of the points out, on that part."""

    sources: tuple[str, ...]
    """Left out whole, one after the other."""
    by_file: tuple[str, ...]
    """Sources that are needed, and were left out one file after the other."""
    missing: tuple[str, ...]
    """Files without which too little is left to fit."""
    collectives: tuple[str, ...]
    """Not asked for, and predicted by the fit to the others."""
    errors: tuple[Errors, ...]


Pairs = list[tuple[str, str, float]]
"""Collective, class of size and predicted / measured of every point."""


def errors_of(link: Link, points: Sequence[Sweep]) -> tuple[Errors, ...]:
    """Summarise the errors of a link by collective and class of size, and of each class."""
    return _summary(list(_pairs(link, points)))


def held_out(
    start: Link, found: Fitted, points: Sequence[Sweep], others: Sequence[Sweep] = ()
) -> HeldOut:
    """Fit without each source in turn and return the errors on it, and on points not asked for.

    Without some source too little may be left. Its files are left out instead, one after the other:
    other runs of the same people on like machines, which says less.
    """
    asked = found.constants
    whole = _left_out(start, asked, points, publisher_of, points)
    needed = [sweep for sweep in points if publisher_of(sweep.source) in whole.missing]
    filed = _left_out(start, asked, points, file_of, needed)
    return HeldOut(
        sources=whole.names,
        by_file=whole.missing if filed.names else (),
        missing=filed.missing,
        collectives=tuple(sorted({sweep.call.name for sweep in others})),
        errors=_summary([*whole.pairs, *filed.pairs, *_pairs(found.link, others)]),
    )


@dataclass(frozen=True, slots=True)
class _Left:
    """Errors on parts that were left out, and the parts that cannot be."""

    names: tuple[str, ...]
    missing: tuple[str, ...]
    pairs: Pairs


def _left_out(
    start: Link,
    asked: Sequence[Constant],
    points: Sequence[Sweep],
    key: Callable[[str], str],
    tested: Sequence[Sweep],
) -> _Left:
    parts: dict[str, list[Sweep]] = defaultdict(list)
    for sweep in tested:
        parts[key(sweep.source)].append(sweep)
    names: list[str] = []
    missing: list[str] = []
    pairs: Pairs = []
    for name, part in parts.items():
        rest = [sweep for sweep in points if key(sweep.source) != name]
        if rest and set(asked) <= set(constants(start, rest)):
            names.append(name)
            pairs.extend(_pairs(fit(start, asked, rest), part))
        else:
            missing.append(name)
    return _Left(tuple(names), tuple(missing), pairs)


def _pairs(link: Link, points: Sequence[Sweep]) -> Iterator[tuple[str, str, float]]:
    for sweep in points:
        ratios = sweep.predicted(link) / sweep.seconds
        for size, ratio in zip(sweep.classes, ratios, strict=True):
            yield sweep.call.name, size, float(ratio)


def _summary(pairs: Pairs) -> tuple[Errors, ...]:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, size, ratio in pairs:
        groups[name, size].append(ratio)
        groups["all", size].append(ratio)
    order = sorted(groups, key=lambda key: (key[0] == "all", key[0], CLASSES.index(key[1])))
    return tuple(_errors(*key, groups[key]) for key in order)


def _errors(collective: str, size: str, ratios: list[float]) -> Errors:
    absolute = [abs(ratio - 1) for ratio in ratios]
    return Errors(
        collective=collective,
        size_class=size,
        points=len(ratios),
        median=median(absolute),
        p90=ninth_in_ten(absolute),
        band=ninth_in_ten([max(ratio, 1 / ratio) - 1 for ratio in ratios]),
    )


def ninth_in_ten(values: Sequence[float]) -> float:
    """Return the value that one in ten exceeds."""
    return sorted(values)[min(len(values) - 1, int(NINE_TENTHS * len(values)))]
