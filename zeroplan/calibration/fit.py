"""The constants of a link that measured collectives tell, by least absolute deviations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from zeroplan.calibration.sweeps import CLASSES, Sweep
from zeroplan.hardware import Link
from zeroplan.hardware.quantity import Quantity, unit_of
from zeroplan.records import dataclass, replace

__all__ = [
    "Constant",
    "Fitted",
    "constants",
    "fit",
    "fitted",
    "known",
    "value_of",
    "with_quantity",
]

FEWEST: Final = 4
"""Points that a constant needs among the messages that tell it. [count]"""

SHORTEST: Final = 1e-7
"""Least time that a constant can be; a profile's numbers are above 0. [s]"""

MOST: Final = {"small_message_efficiency": 0.5}
"""Largest share, where it is not 1: LL sends a flag with every word of data. [1]"""

FIRST_STEP: Final = 0.5
LAST_STEP: Final = 0.004
"""Relative steps of the search. [1]"""

STARTS: Final = {
    "bandwidth_efficiency": 0.7,
    "ring_efficiency_by_gpus": 0.4,
    "host_bytes_per_second": 5e9,
    "base_seconds": 2e-5,
    "latency_seconds": 2e-5,
    "small_message_efficiency": 0.4,
    "small_message_latency_seconds": 1e-6,
    "small_message_base_seconds": 1e-5,
    "ll128_efficiency": 0.8,
    "ll128_latency_seconds": 2e-6,
    "ll128_base_seconds": 2e-5,
    "tree_efficiency": 0.9,
    "switch_efficiency": 0.5,
    "switch_latency_seconds": 8e-6,
    "gloo_bytes_per_second": 1e8,
    "gloo_step_seconds": 1e-3,
}
"""Where the search begins, whatever the profile said: a fit depends on its points alone."""

CONSTANTS: Final = (
    "base_seconds",
    "latency_seconds",
    "small_message_efficiency",
    "small_message_latency_seconds",
    "small_message_base_seconds",
    "ll128_efficiency",
    "ll128_latency_seconds",
    "ll128_base_seconds",
    "tree_efficiency",
    "host_bytes_per_second",
    "switch_efficiency",
    "switch_latency_seconds",
)
"""What is fitted of every link that has it, besides its bandwidth."""

TOLD_BY: Final = {
    "base_seconds": ("medium", "large"),
    "latency_seconds": ("medium", "large"),
    "small_message_efficiency": ("medium",),
    "ll128_efficiency": ("medium",),
    "ll128_latency_seconds": ("medium",),
    "ll128_base_seconds": ("medium",),
    "small_message_latency_seconds": ("small",),
    "small_message_base_seconds": ("small",),
    "gloo_bytes_per_second": CLASSES,
    "gloo_step_seconds": CLASSES,
}
"""The sizes of message that tell a constant; large ones where nothing is said."""


GLOO: Final = ("gloo_bytes_per_second", "gloo_step_seconds")
"""Constants of one collective by gloo."""

STEPS: Final = ("latency_seconds", "small_message_latency_seconds", "ll128_latency_seconds")
"""Constants that only groups of different sizes tell."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the profile, or one by count of GPUs or by collective."""

    field: str
    entry: int | str | None = None

    @property
    def key(self) -> str:
        """Its key in the file."""
        return self.field if self.entry is None else f"{self.field}.{self.entry}"

    @property
    def is_large(self) -> bool:
        """Whether it belongs to the bulk protocol alone."""
        return not self.field.startswith(("small", "ll128", "gloo"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A link with new numbers."""

    link: Link
    constants: tuple[Constant, ...]
    """What was fitted."""
    kept: Mapping[str, str]
    """Why the other constants stay as they were, by key."""


def fitted(start: Link, points: Sequence[Sweep], only: Sequence[str] = ()) -> Fitted:
    """Fit what the points tell, of the given fields if there are any, and leave the rest alone."""
    reasons = {each: _lacking(each, start, points) for each in _asked(start, points)}
    for each in reasons:
        if only and each.field not in only:
            reasons[each] = "not asked for"
    asked = tuple(each for each, reason in reasons.items() if not reason)
    link = fit(start, asked, points)
    for each in asked:
        if not _matters(link, each, points):
            reasons[each] = "no point depends on it"
    told = tuple(each for each, reason in reasons.items() if not reason)
    return Fitted(
        link=link if told == asked else fit(start, told, points),
        constants=told,
        kept={each.key: reason for each, reason in reasons.items() if reason},
    )


def constants(start: Link, points: Sequence[Sweep]) -> tuple[Constant, ...]:
    """Return the constants of a link that the points can tell."""
    return tuple(each for each in _asked(start, points) if not _lacking(each, start, points))


def fit(link: Link, asked: Sequence[Constant], points: Sequence[Sweep]) -> Link:
    """Return the link with the constants that leave the least mean of weighted |log error|.

    One constant after the other is moved up or down by a step as long as that helps; then the step
    is halved. With so few constants no gradient is needed, and single outliers do not matter.
    """
    for constant in asked:
        link = with_value(link, constant, STARTS[constant.field])
    least, step = _loss(link, points), FIRST_STEP
    while step > LAST_STEP:
        moved = False
        for constant in asked:
            for factor in (1 + step, 1 / (1 + step)):
                trial = with_value(link, constant, value_of(link, constant) * factor)
                loss = _loss(trial, points)
                if loss < least:
                    link, least, moved = trial, loss, True
        step = step if moved else step / 2
    return link


def value_of(link: Link, constant: Constant) -> float:
    """Return the number."""
    return _quantity(link, constant).value


def with_value(link: Link, constant: Constant, value: float) -> Link:
    """Return the link with another number: a share of 1 at most, a time that is not nothing."""
    if "efficiency" in constant.field:
        value = min(value, MOST.get(constant.field, 1.0))
    elif constant.field.endswith("_seconds"):
        value = max(value, SHORTEST)
    return with_quantity(link, constant, replace(_quantity(link, constant), value=value))


def with_quantity(link: Link, constant: Constant, quantity: Quantity) -> Link:
    """Return the link with another quantity."""
    changed: dict[str, Any] = {constant.field: quantity}
    if constant.entry is not None:
        changed = {constant.field: {**getattr(link, constant.field), constant.entry: quantity}}
    return replace(link, **changed)


def known(link: Link, constant: Constant) -> bool:
    """Whether a link has the number: gloo's are those of one collective each."""
    return constant.field not in GLOO or constant.entry in getattr(link, constant.field)


def _quantity(link: Link, constant: Constant) -> Quantity:
    if not known(link, constant):
        return Quantity(
            value=STARTS[constant.field],
            unit=unit_of(constant.field),
            kind="assumed",
            source="judgement",
            rel_uncertainty=1.0,
        )
    found = getattr(link, constant.field)
    quantity: Quantity = found if constant.entry is None else found[constant.entry]
    return quantity


def _loss(link: Link, points: Iterable[Sweep]) -> float:
    import numpy as np  # noqa: PLC0415  # only a fit needs arrays

    total = weight = 0.0
    for sweep in points:
        errors = np.abs(np.log(sweep.predicted(link) / sweep.seconds))
        total += float((errors * sweep.weights).sum())
        weight += float(sweep.weights.sum())
    return total / weight


def _matters(link: Link, constant: Constant, points: Sequence[Sweep]) -> bool:
    """Whether a constant changes what any point should take."""
    value, now = value_of(link, constant), _loss(link, points)
    trials = (with_value(link, constant, value * factor) for factor in (0.8, 1.25))
    return any(_loss(trial, points) != now for trial in trials)


def _asked(link: Link, points: Sequence[Sweep]) -> Iterator[Constant]:
    """Yield what a link of this scope has to be fitted, and gloo's for what it has run."""
    for run in sorted({each.call.name for each in points if each.wires.backend == "gloo"}):
        yield from (Constant(field, run) for field in GLOO)
    shares = [Constant("ring_efficiency_by_gpus", count) for count in link.ring_efficiency_by_gpus]
    yield from shares or [Constant("bandwidth_efficiency")]
    for name in CONSTANTS:
        if getattr(link, name) is not None:
            yield Constant(name)


def _lacking(constant: Constant, link: Link, points: Sequence[Sweep]) -> str:
    """Say what is lacking to tell a constant; nothing if it can be told."""
    sizes = TOLD_BY.get(constant.field, ("large",))
    telling = [sweep for sweep in points if _tells(sweep, constant)]
    found = sum(size in sizes for sweep in telling for size in sweep.classes)
    if found < FEWEST:
        return f"{found} of {FEWEST} points needed: {_wanted(constant, sizes)}"
    counts = {_places(sweep, link) for sweep in telling if set(sizes) & set(sweep.classes)}
    unit, needed = ("nodes", 2) if link.scope == "cluster" else ("GPUs", 3)
    if constant.field in STEPS and len(counts) < needed:
        return f"{len(counts)} of {needed} numbers of {unit} needed to tell steps apart"
    return ""


def _tells(sweep: Sweep, constant: Constant) -> bool:
    """Whether a sweep depends on a constant at all."""
    if constant.field in GLOO or sweep.wires.backend == "gloo":
        return constant.field in GLOO and sweep.call.name == constant.entry
    if constant.entry is not None:
        return int(sweep.call.group.ranks_per_node) == constant.entry
    reduces = sweep.call.name == "all_reduce"
    if constant.field.startswith("switch"):
        return reduces
    if constant.field == "tree_efficiency":
        return reduces and sweep.wires.intra.switch_efficiency is None
    return True


def _places(sweep: Sweep, link: Link) -> int:
    group = sweep.call.group
    return int(group.nodes if link.scope == "cluster" else group.ranks)


def _wanted(constant: Constant, sizes: Sequence[str]) -> str:
    what = "all-reduces" if constant.field.startswith(("switch", "tree")) else "collectives"
    if constant.field in GLOO:
        return f"{constant.entry} by gloo"
    among = f" of {constant.entry} GPUs" if constant.entry is not None else ""
    return f"{' and '.join(sizes)} {what}{among}"
