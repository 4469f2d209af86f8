"""The reference pages of the hardware profiles: every figure, its kind and its source."""

from typing import Any, Final

from tables import table, told

from zeroplan.hardware import Choice, load_catalogue
from zeroplan.hardware.profile import Profile, entries
from zeroplan.hardware.quantity import KINDS, Quantity
from zeroplan.report.hardware import SCALES, cell
from zeroplan.units import MIB

PROFILES: Final = {
    "gpu": ("GPUs", ("id", "name", "usable", "memory bandwidth", "16-bit peak", "usual link")),
    "link": ("Links", ("id", "name", "inside a", "line rate", "share reached", "ring step")),
    "node": ("Nodes", ("id", "provider", "GPUs", "link inside", "link between", "price")),
}


def profiles(kind: str) -> str:
    """Return an overview of one kind of profile, and every figure of each."""
    catalogue = load_catalogue()
    every = [getattr(catalogue, kind)(name) for name in getattr(catalogue, f"{kind}_ids")()]
    title, heads = PROFILES[kind]
    words = ", ".join(f"*{word}*" for word in KINDS)
    lines = [
        f"# {title}\n",
        (
            f"What the profiles in `hardware_profiles/{kind}s` hold. Each figure has a kind: {words}. The share behind ± is the "
            "half-width of the band that should hold nine cases in ten. Sources are listed "
            "[by their key](sources.md).\n"
        ),
        table(heads, map(overview, every)),
        *map(figures, every),
    ]
    return "\n".join(lines)


def overview(profile: Any) -> tuple[str, ...]:
    """Return a line of the overview."""
    name = f"[`{profile.id}`](#{profile.id})"
    if hasattr(profile, "usable_bytes"):
        peak = profile.peak_flop_per_second.get("bf16") or profile.peak_flop_per_second["fp16"]
        sizes = profile.usable_bytes, profile.hbm_bytes_per_second, peak
        return (name, told(profile.name), *map(shown, (*sizes, profile.node_link)))
    if hasattr(profile, "scope"):
        rates = profile.bandwidth_bytes_per_second, profile.bandwidth_efficiency
        step = shown(profile.latency_seconds)
        return (name, told(profile.name), profile.scope, *map(shown, rates), step)
    gpus = f"{profile.gpus.value:g} x {profile.gpu.value}"
    price = "" if profile.usd_per_hour is None else f"{profile.usd_per_hour.value:g} USD/h"
    links = profile.intra_link, profile.node_link
    return (name, told(profile.provider), gpus, *map(shown, links), price)


def figures(profile: Profile) -> str:
    """Return every figure of a profile with where it comes from."""
    rows = (
        (
            f"`{key}`",
            f"{shown(each)}{band(each)}",
            each.kind,
            f"[{each.source}](sources.md#{each.source})",
            told(each.note),
        )
        for key, each in entries(profile)
    )
    head = f"\n## {profile.id}\n\n{told(profile.name)}, revision {profile.revision}.\n\n"
    return head + table(("quantity", "value", "kind", "source", "note"), rows)


def shown(entry: Quantity | Choice) -> str:
    """Return a value in the unit that a person reads."""
    if isinstance(entry, Choice):
        return f"`{entry.value}`"
    scale, unit = SCALES.get(entry.unit, (1, entry.unit))
    if unit == "GiB" and entry.value < scale:
        scale, unit = MIB, "MiB"
    return f"{cell(entry.value, scale)} {unit}".rstrip().replace(" ", "&nbsp;")


def band(entry: Quantity | Choice) -> str:
    """Return the uncertainty of a value."""
    share = getattr(entry, "rel_uncertainty", None)
    return "" if share is None else f" ±&nbsp;{share:.0%}"


def sources() -> str:
    """Return where the figures of the profiles come from, by key."""
    lines = ["# Sources of the profiles\n"]
    for key, source in sorted(load_catalogue().sources().items()):
        link = f" <{source.url}>" if source.url else ""
        lines.append(f"## {key}\n\n{told(source.title)}{link}\n")
    return "\n".join(lines)
