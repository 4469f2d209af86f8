"""Fit the shipped link profiles anew to a table of measured collectives.

    python docs/links.py COLLECTIVES.csv

Each line below is a `zeroplan calibrate` command; the profile that it writes records it. A profile
whose numbers stay the same is left as it is. Links inside nodes come first: the others use them.
Numbers that a profile has from a relative, as their note says, follow it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zeroplan.calibration import Calibration, Choice, calibrate_collectives
from zeroplan.calibration.write import link_toml
from zeroplan.hardware import Link, Quantity, load_catalogue
from zeroplan.records import fields, replace

LINKS: Final = Path(__file__).parents[1] / "hardware_profiles" / "links"

FORCED: Final = Choice(min_bytes=16 * 2**20 + 1)
"""The runs forced one protocol, which is the usual one for large messages only."""
STEPS_UNTOLD: Final = Choice(
    constants=(
        "bandwidth_efficiency",
        "base_seconds",
        "small_message_efficiency",
        "small_message_latency_seconds",
        "small_message_base_seconds",
    )
)
"""More than two nodes were measured at one size only."""

RECIPES: Final = {
    "nvlink2": FORCED,
    "nvlink3": Choice(),
    "nvlink4-h800": FORCED,
    "nvlink4": Choice(),
    "nvlink5": Choice(),
    "pcie4": FORCED,
    "pcie5": Choice(),
    "ib-hdr200": Choice(),
    "ib-ndr400": Choice(constants=("bandwidth_efficiency",), gpus=("h100-sxm5-80gb",)),
    "roce-400": Choice(),
    "slingshot-11": Choice(),
    "ethernet-100g": Choice(equal_sources=True),  # most points are on one machine
    "efa-v1": STEPS_UNTOLD,
    "gcp-tcpx-200": Choice(),
    "gcp-tcpxo-200": Choice(collectives=("all_gather",)),
}

RELATIVES: Final = {
    "as HDR": "ib-hdr200",
    "as RoCE 400": "roce-400",
    "as NVLink 3": "nvlink3",
    "as NVLink 4": "nvlink4",
    "as 100 Gbit/s": "ethernet-100g",
}
"""Whose number an assumed one is, by its note."""


def followed(link: Link, links: Mapping[str, Link]) -> Link:
    """Return a link with the numbers of its relatives as they are now."""
    for spec in fields(link):
        own = getattr(link, spec.name)
        if isinstance(own, Quantity) and own.note in RELATIVES:
            other: Quantity = getattr(links[RELATIVES[own.note]], spec.name)
            band = max(own.rel_uncertainty or 0.0, other.rel_uncertainty or 0.0)
            new: dict[str, Any] = {spec.name: replace(own, value=other.value, rel_uncertainty=band)}
            link = replace(link, **new)
    return link


def unchanged(found: Calibration) -> bool:
    """Whether the shipped profile says the same, but for the day."""
    old, new = found.start.fit, found.link.fit
    if old is None or new is None:
        return False
    again = replace(found.link, revision=found.start.revision, fit=replace(new, date=old.date))
    return again == found.start


def main() -> None:
    """Rewrite the profiles."""
    (table,) = sys.argv[1:]
    for link, choice in RECIPES.items():
        found = calibrate_collectives(table, link, choice=choice)
        if unchanged(found):
            print(f"{link}: as it was")
            continue
        (LINKS / f"{link}.toml").write_text(found.to_toml(), encoding="utf-8")
        print(f"{link}: written")
    catalogue = load_catalogue()
    links = {link: catalogue.link(link) for link in catalogue.link_ids()}
    for link, old in links.items():
        new = followed(old, links)
        if new != old:
            raised = replace(new, revision=old.revision + 1)
            (LINKS / f"{link}.toml").write_text(link_toml(raised), encoding="utf-8")
            print(f"{link}: follows its relatives")


if __name__ == "__main__":
    main()
