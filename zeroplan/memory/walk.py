"""A running sum of bytes over the events of a step."""

from dataclasses import dataclass

from zeroplan.schedule.events import Event, Phase, Script
from zeroplan.units import Size
from zeroplan.workload.liveness import Category, Change

__all__ = ["Peak", "live_bytes", "peaks"]

CATEGORIES: tuple[Category, ...] = (
    "parameters",
    "unsharded_parameters",
    "gradients",
    "unsharded_gradients",
    "optimizer",
    "activations",
    "loss",
    "all_gather_buffers",
    "reduce_scatter_buffers",
    "temporaries",
    "workspaces",
    "other",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest moment of a step or of one of its phases."""

    bytes: Size
    event: Event | None
    """The event in which it falls; None where nothing rises above what is resident."""
    breakdown: dict[Category, Size]
    """What is live at that moment, by category; sums to `bytes`. [B]"""


@dataclass(frozen=True, slots=True)
class _Summary:
    """A run of changes seen from its start: where it ends, how high it goes, of what."""

    net: dict[Category, Size]
    net_bytes: Size
    high_bytes: Size
    at_high: dict[Category, Size]


def live_bytes(changes: tuple[Change, ...]) -> dict[Category, Size]:
    """Sum changes by category. [B]"""
    live: dict[Category, Size] = dict.fromkeys(CATEGORIES, 0)
    for change in changes:
        live[change.category] += change.bytes
    return live


def peaks(script: Script) -> dict[Phase, Peak]:
    """Walk a script and return each phase's peak.

    A run of changes is summarised once; events of equal blocks share their run.
    """
    live = live_bytes(script.resident)
    total = sum(live.values())
    found: dict[Phase, Peak] = {}
    summaries: dict[int, _Summary] = {}
    for event in script.events:
        best = found.get(event.phase)
        if best is None:
            best = found[event.phase] = Peak(bytes=total, event=None, breakdown=dict(live))
        if not event.changes:
            continue
        summary = summaries.get(id(event.changes))
        if summary is None:
            summary = summaries[id(event.changes)] = _summarise(event.changes)
        if total + summary.high_bytes > best.bytes:
            at_peak = {c: live[c] + summary.at_high.get(c, 0) for c in CATEGORIES}
            found[event.phase] = Peak(
                bytes=total + summary.high_bytes, event=event, breakdown=at_peak
            )
        for category, size in summary.net.items():
            live[category] += size
        total += summary.net_bytes
    return found


def _summarise(changes: tuple[Change, ...]) -> _Summary:
    net: dict[Category, Size] = {}
    total, high = 0, 0
    at_high: dict[Category, Size] = {}
    for change in changes:
        net[change.category] = net.get(change.category, 0) + change.bytes
        total += change.bytes
        if total > high:
            high, at_high = total, dict(net)
    return _Summary(net=net, net_bytes=total, high_bytes=high, at_high=at_high)
