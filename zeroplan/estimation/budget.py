"""What a number of tokens takes: steps, days, GPU-hours and money, each with its band."""

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from zeroplan.errors import UsageError
from zeroplan.estimation.record import Budget, Estimate, StrategyEstimate
from zeroplan.hardware import load_catalogue
from zeroplan.records import replace
from zeroplan.rows import significant
from zeroplan.spec.run import ClusterChoice
from zeroplan.units import GIGA, HOUR, MEGA, TERA

__all__ = ["parse_price", "parse_tokens", "with_budget"]

WORD: Final = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d{1,2})?)([kmbt]?)", re.IGNORECASE)
SCALES: Final = {"": 1, "k": 1000, "m": MEGA, "b": GIGA, "t": TERA}
MOST_USD: Final = 10**6
MOST_TOKENS: Final = 10**18

NAMED: Final = 4
"""Node types that a note names."""


class Price(NamedTuple):
    """What a GPU-hour costs, and who says so."""

    usd_per_gpu_hour: float
    source: str


def parse_tokens(text: str) -> int:
    """Read a number of tokens: 2T, 300B, 1.5e12.

    Raises
    ------
    UsageError
        The text is no such number, or one that nobody trains on.
    """
    found = WORD.fullmatch(text.strip())
    tokens = round(float(found[1]) * SCALES[found[2].lower()]) if found else 0
    if not 1 <= tokens <= MOST_TOKENS:
        raise UsageError(f"--tokens = {text!r}: use a number of tokens such as 2T, 300B or 1.5e12.")
    return tokens


def parse_price(text: str | None) -> float | None:
    """Read a price of a GPU-hour. [USD/h]

    Raises
    ------
    UsageError
        The text is no number above 0.
    """
    if text is None:
        return None
    try:
        price = float(text.removeprefix("$"))
    except ValueError:
        price = 0.0
    if not 0 < price <= MOST_USD:
        raise UsageError(f"--price = {text!r}: use USD per GPU-hour, a number such as 2.5.")
    return price


def with_budget(
    answer: Estimate, tokens: int, usd_per_gpu_hour: float | None, profiles: Path | None
) -> Estimate:
    """Return an answer whose strategies say what so many tokens take.

    Parameters
    ----------
    answer
        The answer for one step.
    tokens
        Tokens to train on.
    usd_per_gpu_hour
        Price; without one it is the node type's, where its profile has one. [USD/h]
    profiles
        Folder whose hardware profiles come before the shipped ones.
    """
    cluster = answer.inputs.cluster
    price = _known_price(cluster, profiles)
    if usd_per_gpu_hour is not None:
        price = Price(usd_per_gpu_hour, "as given")
    training, gpus = answer.inputs.training, cluster.gpus
    sequences = training.micro_batch_size * training.gradient_accumulation_steps * gpus
    steps = ceil(tokens / (sequences * (training.sequence_length or 1)))
    estimates = (
        replace(each, budget=_budget(each, tokens, steps, gpus, price)) for each in answer.estimates
    )
    notes = (*answer.notes, *_notes(cluster, price, profiles))
    return replace(answer, estimates=tuple(estimates), notes=notes)


def _notes(cluster: ClusterChoice, price: Price | None, profiles: Path | None) -> Iterator[str]:
    yield "Tokens take their training steps alone: evaluation, checkpoints and restarts are not in it."
    if price is not None:
        yield f"A GPU-hour costs {significant(price.usd_per_gpu_hour)} USD: {price.source}."
        return
    nodes = _priced_nodes(cluster.gpu or "", profiles)
    named = f", or name a node type with a known one: {', '.join(nodes[:NAMED])}" if nodes else ""
    yield f"No cost: give --price in USD per GPU-hour{named}."


def _budget(
    each: StrategyEstimate, tokens: int, steps: int, gpus: int, price: Price | None
) -> Budget:
    """Multiply the step and the ends of its band."""
    time = each.time
    ends = (time.step_seconds, time.low_seconds, time.high_seconds)
    run, low, high = (steps * (seconds or 0.0) for seconds in ends)
    usd = None if price is None else price.usd_per_gpu_hour * gpus / HOUR
    return Budget(
        tokens=tokens,
        steps=steps,
        run_seconds=run,
        low_run_seconds=low,
        high_run_seconds=high,
        gpu_seconds=run * gpus,
        low_gpu_seconds=low * gpus,
        high_gpu_seconds=high * gpus,
        price_usd_per_gpu_hour=None if price is None else price.usd_per_gpu_hour,
        price_source=None if price is None else price.source,
        cost_usd=None if usd is None else run * usd,
        low_cost_usd=None if usd is None else low * usd,
        high_cost_usd=None if usd is None else high * usd,
    )


def _known_price(cluster: ClusterChoice, profiles: Path | None) -> Price | None:
    """Return what the node type that is named costs, where its profile says so."""
    if cluster.node is None:
        return None
    catalogue = load_catalogue(profiles)
    node = catalogue.node(cluster.node)
    if node.usd_per_hour is None:
        return None
    source = catalogue.sources()[node.usd_per_hour.source].title
    read = f", {node.price_date}" if node.price_date else ""
    return Price(node.usd_per_hour.value / node.gpus.value, f"{node.id}{read} ({source})")


def _priced_nodes(gpu: str, profiles: Path | None) -> list[str]:
    """List node types of a GPU whose price is known, each with it."""
    catalogue = load_catalogue(profiles)
    nodes = (catalogue.node(name) for name in catalogue.node_ids())
    return [
        f"{node.id} ({significant(node.usd_per_hour.value / node.gpus.value)})"
        for node in nodes
        if node.gpu.value == gpu and node.usd_per_hour is not None
    ]
