"""Fill the table of docs/accuracy.md on collectives of sources that nothing was fitted to.

    python docs/left_out.py COLLECTIVES.csv

For every InfiniBand and RoCE link and every source on it, the link and those inside its nodes are
fitted again without one row of the source; what the others cannot tell comes from a relative. Other
links have no relative that could stand in; `zeroplan calibrate` leaves out what it can of those.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from accuracy import PAGE, percent, table
from links import RECIPES, followed

from zeroplan.backtesting.collectives import Measured, measured_collectives
from zeroplan.calibration.collectives import used_rows
from zeroplan.calibration.fit import Constant, constants, fit, value_of, with_value
from zeroplan.calibration.sweeps import sweeps
from zeroplan.comm.collectives import collective_seconds, collective_uncertainty
from zeroplan.hardware import Link, load_catalogue
from zeroplan.records import dataclass, fields, replace
from zeroplan.units import MIB

LINKS: Final = {name: load_catalogue().link(name) for name in load_catalogue().link_ids()}
TELLS: Final = {"ib-hdr200": "roce-400", "ib-ndr400": "ib-hdr200", "roce-400": "ib-hdr200"}
"""The link that stands in for one that too few sources measured."""
BORROWED: Final = {"roce-100": "roce-400", "roce-200": "roce-400"}
"""Links without a fit of their own, and whose they take."""
SEEN_ELSEWHERE: Final = {"xgmi-mi300x": "nvlink4"}
"""Links whose shipped number comes from a row of the table: another's share stands in for it."""
SIZES: Final = {"<= 1 MiB": (0, 1), "1-16 MiB": (1, 16), "> 16 MiB": (16, 2**30)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row, predicted without its source."""

    row: Measured
    ratio: float
    """Predicted over measured. [1]"""
    band: float


def fitted_constants(link: Link) -> list[Constant]:
    """Return what the shipped profile was fitted."""
    own = [Constant("ring_efficiency_by_gpus", n) for n in link.ring_efficiency_by_gpus]
    names = [Constant(s.name) for s in fields(link) if s.name != "ring_efficiency_by_gpus"]
    return [each for each in (*own, *names) if is_fitted(link, each)]


def is_fitted(link: Link, constant: Constant) -> bool:
    """Whether `zeroplan calibrate` found this number."""
    found = getattr(link, constant.field, None)
    if constant.gpus is not None:
        found = link.ring_efficiency_by_gpus[constant.gpus]
    return getattr(found, "source", None) == "calibration"


def refitted(name: str, rows: Sequence[Measured], links: Mapping[str, Link], source: str) -> Link:
    """Fit a link without a source."""
    start = LINKS[name]
    used = used_rows(rows, start, RECIPES[name])
    rest = [row for row in used if key_of(row) != source]
    if len(rest) == len(used):
        return start
    points = sweeps(rewired(row, links) for row in rest)
    tellable = constants(start, points)
    told, link = [], start
    for each in fitted_constants(start):
        if each in tellable:
            told.append(each)
        else:
            link = with_value(link, each, value_of(links[TELLS[name]], each))
    return fit(link, told, points) if told else link


def key_of(row: Measured) -> str:
    """Return the key of a row's source: one lab may publish in several repositories."""
    return row.cells.text("source").split()[0]


def rewired(row: Measured, links: Mapping[str, Link]) -> Measured:
    """Put other versions of its links under a row."""
    wires = row.wires
    intra, inter = links[wires.intra.id], links[wires.inter.id]
    return replace(row, wires=replace(wires, intra=intra, inter=inter))


def without(name: str, rows: Sequence[Measured], source: str) -> Mapping[str, Link]:
    """Return all links as they would be without a source; those inside nodes come first."""
    links = dict(LINKS)
    own = BORROWED.get(name, name)
    inside = {row.wires.intra.id for row in rows if row.outer.id == name}
    for link in (*inside.intersection(RECIPES), TELLS[own], own):
        links[link] = refitted(link, rows, links, source)
    for link, other in SEEN_ELSEWHERE.items():
        share = links[other].bandwidth_efficiency
        links[link] = replace(links[link], bandwidth_efficiency=share)
    return {link: followed(each, links) for link, each in links.items()}


def left_out(name: str, rows: Sequence[Measured]) -> Iterator[Found]:
    """Yield every row on a link, predicted without its source."""
    own = [row for row in rows if row.outer.id == name]
    for source in dict.fromkeys(key_of(row) for row in own):
        links = without(name, rows, source)
        for row in own:
            if key_of(row) == source:
                new = rewired(row, links)
                seconds = collective_seconds(new.call, new.wires, in_place=new.in_place)
                band = collective_uncertainty(row.call, row.wires)
                yield Found(row=row, ratio=seconds / row.seconds, band=band)


def lines(found: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    """Write the errors by collective and size."""
    for call in ("all_gather", "all_reduce"):
        for size, (least, most) in SIZES.items():
            own = [
                each
                for each in found
                if each.row.call.name == call
                and least * MIB < each.row.call.message_bytes <= most * MIB
            ]
            yield call, size, *summary(own)


def summary(own: Sequence[Found]) -> tuple[object, ...]:
    """Write rows, sources, median, p90 and the share in the band."""
    errors = sorted(abs(each.ratio - 1) for each in own)
    inside = [1 / (1 + each.band) <= each.ratio <= 1 + each.band for each in own]
    return (
        len(own),
        len({key_of(each.row) for each in own}),
        percent(median(errors)),
        percent(errors[min(len(errors) - 1, int(0.9 * len(errors)))]),
        percent(sum(inside) / len(inside)),
    )


HEADS: Final = (
    "collective",
    "size",
    "rows",
    "sources",
    "median of size [%]",
    "p90 [%]",
    "inside band [%]",
)


def main() -> None:
    """Rewrite the table."""
    (path,) = sys.argv[1:]
    rows, _ = measured_collectives(path, load_catalogue())
    found = [each for name in (*TELLS, *BORROWED) for each in left_out(name, rows)]
    text = f"<!-- left_out -->\n{table(HEADS, lines(found))}<!-- end -->"
    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(r"<!-- left_out -->\n.*?<!-- end -->", re.DOTALL)
    PAGE.write_text(block.sub(lambda _: text, page), encoding="utf-8")


if __name__ == "__main__":
    main()
