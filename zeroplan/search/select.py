"""Which plans of a block are worth remembering, and which of all are the best."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from zeroplan.errors import SpecError
from zeroplan.estimation.budget import price_of
from zeroplan.estimation.hypothetical import hypothetical_notes
from zeroplan.estimation.many import VERDICTS
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import load_catalogue
from zeroplan.records import dataclass, field
from zeroplan.rows import readable
from zeroplan.search.blocks import Block
from zeroplan.search.record import Choice, NearMiss, Objective
from zeroplan.units import HOUR, MEGA

__all__ = [
    "Prices",
    "Remembered",
    "better",
    "frontier",
    "near_misses",
    "races",
    "remembered",
    "rent",
    "together",
]

NEAR: Final = 1.2
"""Share of the usable memory up to which a plan that does not fit is a near miss. [1]"""

Prices = Mapping[str, float]
"""USD per GPU-hour by GPU; the empty name stands for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The plans of one structure, or of several, that may be among the best."""

    plans: int = 0
    fitting: int = 0
    choices: tuple[Choice, ...] = ()
    near_misses: tuple[Choice, ...] = ()
    nearest: Mapping[str, Any] | None = None
    """Where there is neither: the fields of a `Nearest`, plain as in a journal."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Plans that cannot be, by reason. [count]"""


def together(parts: Iterable[Remembered]) -> Remembered:
    """Join what is remembered."""
    every = list(parts)
    refused = Counter[str]()
    for each in every:
        refused.update(each.refused)
    return Remembered(
        plans=sum(each.plans for each in every),
        fitting=sum(each.fitting for each in every),
        choices=tuple(choice for each in every for choice in each.choices),
        near_misses=tuple(choice for each in every for choice in each.near_misses),
        nearest=min(
            (each.nearest for each in every if each.nearest is not None),
            key=_lack,
            default=None,
        ),
        refused=dict(refused),
    )


def races(memory: Mapping[str, Any], *, tight: bool) -> tuple[Any, ...]:
    """Say of which plans the fastest matters: those that fit, the roomiest, those that nearly fit.

    Parameters
    ----------
    memory
        Figures of plans by name. [A, batches, machines]
    tight
        Whether plans within the uncertainty of the limit count as fitting.

    """
    device, usable = memory["device_bytes"], memory["usable_bytes"]
    fits = _fits(memory["verdict"], tight=tight)
    roomiest = np.zeros(fits.shape, bool)
    roomiest.flat[[*_highest(usable - device, fits)]] = True
    return fits, roomiest, ~fits & (device <= NEAR * usable)


def _fits(verdict: Any, *, tight: bool) -> Any:
    return verdict <= (1 if tight else 0)


def remembered(
    block: Block, prices: Prices, *, tight: bool, profiles: Path | None = None
) -> Remembered:
    """Keep the fastest and the roomiest plan of each machine, and the fastest that is too large.

    Within a block all plans have the same number of GPUs, and on one machine the same price by the
    hour: the fastest is then the least expensive, too.
    """
    figures = block.figures
    fits = _fits(figures.verdict, tight=tight)
    headroom = figures.usable_bytes - figures.device_bytes
    speed = figures.tokens_per_second_per_gpu
    timed = ~np.isnan(speed)
    kept = {*_highest(speed, fits & timed), *_highest(headroom, fits)}
    missed = [*_highest(speed, ~fits & timed)]
    return Remembered(
        plans=int(fits.size),
        fitting=int(fits.sum()),
        choices=tuple(_choice(block, place, prices, profiles) for place in sorted(kept)),
        near_misses=tuple(_choice(block, place, prices, profiles) for place in missed),
        nearest=None if kept or missed else _nearest(block, headroom, profiles),
    )


def _nearest(block: Block, headroom: Any, profiles: Path | None) -> Mapping[str, Any]:
    """Return what lacks least, on a real machine if there is one."""
    places = _highest(headroom, among=True)
    return min((_lacking(block, place, profiles) for place in places), key=_lack)


def _lack(nearest: Mapping[str, Any]) -> tuple[bool, int]:
    return nearest["hypothetical"] is not None, nearest["missing_bytes"]


def _lacking(block: Block, place: int, profiles: Path | None) -> dict[str, Any]:
    figures = block.figures
    device, usable = (int(v.flat[place]) for v in (figures.device_bytes, figures.usable_bytes))
    question = block.question(place)
    return {
        "keys": block.keys(place),
        "strategy": question.run.sharding.strategy,
        "gpu": question.gpu.id,
        "gpus": block.gpus,
        "device_bytes": device,
        "usable_bytes": usable,
        "missing_bytes": device - usable,
        "hypothetical": _hypothetical(question, profiles),
    }


def _hypothetical(question: Question, profiles: Path | None) -> str | None:
    cluster, catalogue = question.run.cluster, load_catalogue(profiles)
    return next(iter(hypothetical_notes(cluster, question.gpu, question.wires, catalogue)), None)


def _highest(values: Any, among: Any) -> Iterator[int]:
    """Yield for each machine the place of its highest value among some plans."""
    shown = np.where(among, values, -np.inf)
    flat = shown.reshape(-1, shown.shape[-1])
    for machine, place in enumerate(flat.argmax(axis=0)):
        if flat[place, machine] > -np.inf:
            yield int(place * shown.shape[-1] + machine)


def _choice(block: Block, place: int, prices: Prices, profiles: Path | None) -> Choice:
    figures, gpus = block.figures, block.gpus
    question = block.question(place)
    at: Callable[[Any], Any] = lambda values: values.flat[place].item()  # noqa: E731
    speed = at(figures.tokens_per_second_per_gpu)
    hours = MEGA / speed / HOUR
    price = price_of(question.run.cluster, prices, profiles)
    device, usable = int(at(figures.device_bytes)), int(at(figures.usable_bytes))
    return Choice(
        keys=block.keys(place),
        gpu=question.gpu.id,
        gpus=gpus,
        verdict=VERDICTS[at(figures.verdict)],
        device_bytes=device,
        usable_bytes=usable,
        headroom_bytes=usable - device,
        step_seconds=at(figures.step_seconds),
        low_seconds=at(figures.low_seconds),
        high_seconds=at(figures.high_seconds),
        exposed_communication_seconds=at(figures.exposed_communication_seconds),
        tokens_per_second=speed * gpus,
        model_flops_utilization=at(figures.model_flops_utilization),
        gpu_hours_per_million_tokens=hours,
        price_usd_per_gpu_hour=price and price.usd_per_gpu_hour,
        price_source=price and price.source,
        usd_per_million_tokens=price and hours * price.usd_per_gpu_hour,
        hypothetical=_hypothetical(question, profiles),
    )


def better(objective: Objective) -> Callable[[Choice], tuple[float, ...]]:
    """Return what sorts plans, the best first and hypothetical ones last."""
    key = _better(objective)
    return lambda each: (each.hypothetical is not None, *key(each))


def _better(objective: Objective) -> Callable[[Choice], tuple[float, ...]]:
    match objective:
        case "fastest":
            return lambda each: (-each.tokens_per_second, each.gpus)
        case "cheapest":
            return lambda each: (_cost(each), -each.tokens_per_second)
        case "fewest-gpus":
            return lambda each: (each.gpus, -each.tokens_per_second)
        case "most-headroom":
            return lambda each: (-each.headroom_bytes, -each.tokens_per_second)


def _cost(each: Choice) -> float:
    if each.usd_per_million_tokens is None:
        raise SpecError(
            f"no price is known for {each.gpu}: give it in USD per GPU-hour, as in "
            f"--price {each.gpu}=2.50, or name node types whose profile has one."
        )
    return each.usd_per_million_tokens


def frontier(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Return the plans than which none is faster for as few GPUs, or as little money by the hour.

    Money and GPUs do not compare: plans without a price are left out where others have one, and so
    are hypothetical ones beside real ones.
    """
    several = list(choices)
    every = [each for each in several if each.hypothetical is None] or several
    rated = [each for each in every if each.usd_per_million_tokens is not None] or every
    found: list[Choice] = []
    for each in sorted(rated, key=lambda each: (rent(each), -each.tokens_per_second)):
        if not found or each.tokens_per_second > found[-1].tokens_per_second:
            found.append(each)
    return tuple(found)


def rent(each: Choice) -> float:
    """Return USD per hour of all GPUs, or their number where no price is known."""
    if each.usd_per_million_tokens is None:
        return each.gpus
    exact = each.usd_per_million_tokens * each.tokens_per_second * HOUR / MEGA
    return float(f"{exact:.9g}")  # rounded, that equal rents stay equal after a division and back


def near_misses(
    missed: Iterable[Choice], chosen: Choice | None, objective: Objective, most: int
) -> tuple[NearMiss, ...]:
    """Return the plans that would have been better than the one chosen, and what they violate."""
    key = better(objective)
    found = sorted((each for each in missed if chosen is None or key(each) < key(chosen)), key=key)
    return tuple(NearMiss(choice=each, why=_why(each)) for each in found[:most])


def _why(each: Choice) -> str:
    needed, there = (readable(size, "B") for size in (each.device_bytes, each.usable_bytes))
    if each.verdict == "tight":
        return f"tight: {needed} is within the uncertainty of the limit"
    if each.headroom_bytes >= 0:
        return "the memory of the host does not hold it"
    return f"{needed} needed, {there} usable"
