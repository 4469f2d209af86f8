"""What a number of tokens takes: steps, days, GPU-hours and money, each with its band."""

import re
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from zeroplan.errors import SpecError, UsageError
from zeroplan.estimation.record import Budget, Estimate, StrategyEstimate
from zeroplan.hardware import Node, load_catalogue
from zeroplan.records import replace
from zeroplan.rows import significant
from zeroplan.spec.run import ClusterChoice
from zeroplan.units import GIGA, HOUR, MEGA, TERA

__all__ = ["Price", "parse_prices", "parse_tokens", "price_note", "price_of", "with_budget"]

WORD: Final = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d{1,2})?)([kmbt]?)", re.IGNORECASE)
SCALES: Final = {"": 1, "k": 1000, "m": MEGA, "b": GIGA, "t": TERA}
MOST_USD: Final = 10**6
PRICE_FORMS: Final = (
    "USD per GPU-hour, one price for all GPUs (2.5) or one for each "
    "(h100-sxm5-80gb=2.5,a100-sxm4-80gb=1.4)"
)
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


def parse_prices(text: str | None, profiles: Path | None) -> dict[str, float]:
    """Read prices of a GPU-hour by GPU; the empty name stands for all of them. [USD/h]

    Raises
    ------
    UsageError
        A price is no number above 0, or it is not clear which GPU's it is.
    """
    found: dict[str, float] = {}
    for part in () if text is None else text.split(","):
        gpu, named, usd = part.strip().rpartition("=")
        price = _usd(usd)
        if price is None or gpu in found:
            fault = "that is no price" if price is None else "two prices for the same GPUs"
            raise UsageError(f"--price = {text!r}: {fault}; use {PRICE_FORMS}.")
        if named:
            _verify_gpu(gpu, part, profiles)
        found[gpu] = price
    return found


def _usd(text: str) -> float | None:
    try:
        price = float(text.removeprefix("$"))
    except ValueError:
        return None
    return price if 0 < price <= MOST_USD else None


def _verify_gpu(gpu: str, part: str, profiles: Path | None) -> None:
    """Refuse the price of a GPU that nobody knows, which would be left aside in silence."""
    try:
        load_catalogue(profiles).gpu(gpu)
    except SpecError as error:
        raise UsageError(f"--price = {part.strip()!r}: {error}") from None


def with_budget(
    answer: Estimate, tokens: int, prices: Mapping[str, float], profiles: Path | None
) -> Estimate:
    """Return an answer whose strategies say what so many tokens take.

    Parameters
    ----------
    answer
        The answer for one step.
    tokens
        Tokens to train on.
    prices
        USD per GPU-hour by GPU, the empty name for all; without one it is the node type's, where
        its profile has one.
    profiles
        Folder whose hardware profiles come before the shipped ones.
    """
    cluster = answer.inputs.cluster
    price = price_of(cluster, prices, profiles)
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
        yield price_note(price)
        return
    nodes = _priced_nodes(cluster.gpu or "", profiles)
    named = f", or name a node type with a known one: {', '.join(nodes[:NAMED])}" if nodes else ""
    yield f"No cost on {cluster.node or cluster.gpu}: give --price in USD per GPU-hour{named}."


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


def price_of(
    cluster: ClusterChoice, prices: Mapping[str, float], profiles: Path | None
) -> Price | None:
    """Return what a GPU-hour of a cluster costs: as given, or else as its node type's profile says.

    Parameters
    ----------
    cluster
        The cluster, its GPU filled in.
    prices
        USD per GPU-hour by GPU; the empty name stands for all of them.
    profiles
        Folder whose hardware profiles come before the shipped ones.
    """
    gpu = cluster.gpu or ""
    if gpu in prices:
        return Price(prices[gpu], f"as given for {gpu}")
    return Price(prices[""], "as given") if "" in prices else _node_price(cluster, profiles)


def price_note(price: Price) -> str:
    """Say what a GPU-hour costs, and who says so."""
    return f"A GPU-hour costs {significant(price.usd_per_gpu_hour)} USD: {price.source}."


def _node_price(cluster: ClusterChoice, profiles: Path | None) -> Price | None:
    if cluster.node is None:
        return None
    catalogue = load_catalogue(profiles)
    node = catalogue.node(cluster.node)
    if node.usd_per_hour is None:
        return None
    source = catalogue.sources()[node.usd_per_hour.source].title
    read = f", {node.price_date}" if node.price_date else ""
    said = f"{node.id}{read} ({source}){_other_network(cluster, node)}"
    return Price(node.usd_per_hour.value / node.gpus.value, said)


def _other_network(cluster: ClusterChoice, node: Node) -> str:
    """Say where the links asked for are not those that the node's price is for."""
    several = cluster.gpus > (cluster.gpus_per_node or node.gpus.value)
    links = [(cluster.intra_link, node.intra_link)]
    links += [(cluster.link, node.node_link)] if several else []
    others = [(own.value, asked) for asked, own in links if asked not in (None, own.value)]
    return "".join(f"; with its own {own} rather than {asked}" for own, asked in others)


def _priced_nodes(gpu: str, profiles: Path | None) -> list[str]:
    """List node types of a GPU whose price is known, each with it."""
    catalogue = load_catalogue(profiles)
    nodes = (catalogue.node(name) for name in catalogue.node_ids())
    return [
        f"{node.id} ({significant(node.usd_per_hour.value / node.gpus.value)})"
        for node in nodes
        if node.gpu.value == gpu and node.usd_per_hour is not None
    ]
