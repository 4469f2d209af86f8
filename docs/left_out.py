"""Fill the table of docs/accuracy.md on collectives of sources that nothing was fitted to.

    python docs/left_out.py COLLECTIVES.csv

For every link and every source on it, the link and those inside its nodes are fitted again without
one row of the source. What the other sources cannot tell comes from the relative named here; where
there is none, the source is left out file after file, which says less.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, Final

from accuracy import PAGE, percent, table
from links import RECIPES, followed

from zeroplan.backtesting.collectives import Measured, measured_collectives
from zeroplan.calibration.collectives import Choice, used_rows
from zeroplan.calibration.fit import Constant, constants, fit, value_of, with_value
from zeroplan.calibration.sweeps import alike, publisher_of, sweeps
from zeroplan.comm.collectives import collective_seconds, collective_uncertainty
from zeroplan.hardware import Link, load_catalogue
from zeroplan.records import dataclass, fields, replace

LINKS: Final = {name: load_catalogue().link(name) for name in load_catalogue().link_ids()}
TELLS: Final = {
    "nvlink3": "nvlink4",
    "ib-hdr200": "roce-400",
    "ib-ndr400": "ib-hdr200",
    "roce-400": "ib-hdr200",
}
"""The link that stands in for one that too few sources measured."""
BORROWED: Final = {"roce-100": "roce-400", "roce-200": "roce-400"}
"""Links without a fit of their own, and whose they take."""
SEEN_ELSEWHERE: Final = {"xgmi-mi300x": "nvlink4"}
"""Links whose shipped number comes from a row of the table: another's share stands in for it."""
BARS: Final = {
    "nvlink": ("nvlink",),
    "infiniband, roce": ("infiniband", "roce"),
    "ethernet": ("tcp", "tcp_on_slingshot"),
    "efa": ("efa",),
}
KINDS: Final = ("nvlink", "infiniband", "roce", "ethernet", "efa")
"""Technologies of the table: those with a bar, and those that two sources disagree on."""
SIZES: Final = {"<= 1 MiB": (0, 1), "1-16 MiB": (1, 16), "> 16 MiB": (16, 2**30)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row, predicted without its source or its file."""

    row: Measured
    whole: bool
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


def refitted(
    name: str, rows: Sequence[Measured], links: dict[str, Link], left: Callable[[str], bool]
) -> Link | None:
    """Fit a link without some sources; None if the others do not tell enough."""
    start = links[name]
    asked = fitted_constants(start)
    used = used_rows(rows, start, RECIPES[name])
    rest = [rewired(row, links) for row in used if not left(row.cells.text("source"))]
    if len(rest) == len(used):
        return start
    points = sweeps(rest)
    if RECIPES[name].equal_sources:
        points = alike(points)
    told = [each for each in asked if each in constants(start, points)] if points else []
    link = start
    for each in asked:
        if each not in told:
            if name not in TELLS:
                return None
            link = with_value(link, each, value_of(links[TELLS[name]], each))
    return fit(link, told, points) if told else link


def rewired(row: Measured, links: dict[str, Link]) -> Measured:
    """Put other versions of its links under a row."""
    wires = row.wires
    intra, inter = links[wires.intra.id], links[wires.inter.id]
    return replace(row, wires=replace(wires, intra=intra, inter=inter))


def without(name: str, rows: Sequence[Measured], left: Callable[[str], bool]) -> Any:
    """Return all links as they would be without some sources; None if too little is left."""
    links = dict(LINKS)
    own = BORROWED.get(name, name)
    inside = {row.wires.intra.id for row in rows if row.outer.id == name} | {own}
    stand_ins = {TELLS.get(own, own)}
    for link in RECIPES:
        if link in inside | stand_ins:
            found = refitted(link, rows, links, left)
            if found is None:
                return None
            links[link] = found
    for link, other in SEEN_ELSEWHERE.items():
        share = links[other].bandwidth_efficiency
        links[link] = replace(links[link], bandwidth_efficiency=share)
    links = {link: followed(each, links) for link, each in links.items()}
    return links


def predicted(rows: Sequence[Measured], links: dict[str, Link], *, whole: bool) -> Iterator[Found]:
    """Yield the errors of rows with such links."""
    for row in rows:
        new = rewired(row, links)
        seconds = collective_seconds(new.call, new.wires, in_place=new.in_place)
        band = collective_uncertainty(row.call, row.wires)
        yield Found(row=row, whole=whole, ratio=seconds / row.seconds, band=band)


def left_out(name: str, rows: Sequence[Measured]) -> Iterator[Found]:
    """Yield every row on a link, predicted without its source if that can be."""
    forced = Choice(min_bytes=RECIPES.get(name, Choice()).min_bytes)
    own = used_rows(rows, LINKS[name], forced)
    for publisher in dict.fromkeys(publisher_of(row.cells.text("source")) for row in own):
        part = [row for row in own if publisher_of(row.cells.text("source")) == publisher]
        links = without(name, rows, lambda source, one=publisher: publisher_of(source) == one)
        if links is not None:
            yield from predicted(part, links, whole=True)
            continue
        files: dict[str, list[Measured]] = defaultdict(list)
        for row in part:
            files[row.cells.text("source")].append(row)
        for file, few in files.items():
            links = without(name, rows, lambda source, one=file: source == one)
            if links is not None:
                yield from predicted(few, links, whole=False)


def lines(found: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    """Write the errors by fabric, collective and size."""
    pairs = {"all_gather, reduce_scatter": ("all_gather", "reduce_scatter")}
    for fabric, fabrics in BARS.items():
        for calls, names in {**pairs, "all_reduce": ("all_reduce",)}.items():
            for size, (least, most) in SIZES.items():
                own = [
                    each
                    for each in found
                    if each.row.cells.text("fabric").lower() in fabrics
                    and each.row.call.name in names
                    and least * 2**20 < each.row.call.message_bytes <= most * 2**20
                ]
                if own:
                    yield fabric, calls, size, *summary(own)


def summary(own: Sequence[Found]) -> tuple[object, ...]:
    """Write rows, how many without their whole source, median, p90 and share in the band."""
    errors = sorted(abs(each.ratio - 1) for each in own)
    inside = [1 / (1 + e.band) <= e.ratio <= 1 + e.band for e in own]
    return (
        len(own),
        len({publisher_of(each.row.cells.text("source")) for each in own}),
        sum(each.whole for each in own),
        percent(median(errors)),
        percent(errors[min(len(errors) - 1, int(0.9 * len(errors)))]),
        percent(sum(inside) / len(inside)),
    )


HEADS: Final = (
    "fabric",
    "collectives",
    "size",
    "rows",
    "sources",
    "without their source",
    "median of size [%]",
    "p90 [%]",
    "inside band [%]",
)


def main() -> None:
    """Rewrite the table."""
    (path,) = sys.argv[1:]
    rows, _ = measured_collectives(path, load_catalogue())
    found = [
        each
        for name in (*RECIPES, *BORROWED)
        if LINKS[name].kind in KINDS
        for each in left_out(name, rows)
    ]
    text = f"<!-- left_out -->\n{table(HEADS, lines(found))}<!-- end -->"
    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(r"<!-- left_out -->\n.*?<!-- end -->", re.DOTALL)
    PAGE.write_text(block.sub(lambda _: text, page), encoding="utf-8")


if __name__ == "__main__":
    main()
