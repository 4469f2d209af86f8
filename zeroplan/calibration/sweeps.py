"""Measured collectives of one link, those that differ only in size priced together."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from zeroplan.backtesting.collectives import Measured
from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.hardware import Link
from zeroplan.records import dataclass, replace
from zeroplan.schedule.events import Collective
from zeroplan.units import MIB, Size

__all__ = ["CLASSES", "Sweep", "alike", "file_of", "publisher_of", "size_class", "sweeps"]

CLASSES: Final = ("small", "medium", "large")
"""Messages up to 1 MiB, up to 16 MiB, and above."""

WEIGHTS: Final = {"small": 0.4, "medium": 1.5, "large": 3.0}
"""What a point counts in a fit: training steps send mostly large messages. [1]"""

PUBLISHER: Final = re.compile(r"[^@#]+")
"""A source up to its revision, as in "github:owner/repository@commit:file"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One configuration measured at several sizes; arrays have an entry per point."""

    source: str
    call: Collective
    """Its bytes are arrays."""
    wires: Fabric
    in_place: bool | None
    seconds: Any
    weights: Any
    classes: tuple[str, ...]

    def predicted(self, link: Link) -> Any:
        """Return what a version of the link would take. [s]"""
        wires = self.wires
        intra = link if wires.intra.id == link.id else wires.intra
        inter = link if wires.inter.id == link.id else wires.inter
        trial = replace(wires, intra=intra, inter=inter)
        return collective_seconds(self.call, trial, in_place=self.in_place)


def size_class(message_bytes: int) -> str:
    """Return the class of a message."""
    if message_bytes <= MIB:
        return CLASSES[0]
    return CLASSES[1] if message_bytes <= 16 * MIB else CLASSES[2]


def publisher_of(source: str) -> str:
    """Return who published a source, whatever file or revision it is."""
    found = PUBLISHER.match(source)
    return (found[0] if found else source).strip()


def file_of(source: str) -> str:
    """Return the source itself: one publisher's files are different runs."""
    return source


def sweeps(rows: Iterable[Measured]) -> tuple[Sweep, ...]:
    """Group rows that differ only in their size."""
    groups: dict[object, list[Measured]] = {}
    for row in rows:
        call, wires = row.call, row.wires
        links = wires.intra.id, wires.inter.id, wires.node_bytes_per_second
        rates = wires.gpus_per_node, wires.copy_bytes_per_second, wires.backend
        key = (_source(row), call.name, call.group, row.in_place, links, rates)
        groups.setdefault(key, []).append(row)
    return tuple(_sweep(group) for group in groups.values())


def alike(points: Iterable[Sweep]) -> tuple[Sweep, ...]:
    """Let every source weigh the same, however many points it has."""
    points = tuple(points)
    found = Counter[str]()
    for sweep in points:
        found[publisher_of(sweep.source)] += len(sweep.classes)
    return tuple(
        replace(sweep, weights=sweep.weights / found[publisher_of(sweep.source)])
        for sweep in points
    )


def _source(row: Measured) -> str:
    return row.cells.text("source")


def _sweep(rows: list[Measured]) -> Sweep:
    import numpy as np  # noqa: PLC0415  # only a fit needs arrays

    def column(values: Iterable[Size]) -> Any:
        return np.array(list(values), dtype=float)

    first = rows[0]
    classes = tuple(size_class(row.call.message_bytes) for row in rows)
    return Sweep(
        source=_source(first),
        call=replace(
            first.call,
            input_bytes=column(row.call.input_bytes for row in rows),
            output_bytes=column(row.call.output_bytes for row in rows),
        ),
        wires=first.wires,
        in_place=first.in_place,
        seconds=column(row.seconds for row in rows),
        weights=column(WEIGHTS[each] for each in classes),
        classes=classes,
    )
