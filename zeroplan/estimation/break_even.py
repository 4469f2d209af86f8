"""How much work, or how fast a link, hides the communication: found by asking again and again."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from zeroplan.comm.fabric import Fabric
from zeroplan.estimation.answer import answer
from zeroplan.estimation.changes import tried_out
from zeroplan.estimation.record import StrategyEstimate, Verdict
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import Link, Quantity
from zeroplan.records import dataclass, replace
from zeroplan.sharding.strategies import Sharding

__all__ = ["HIDDEN", "Enough", "enough_bandwidth", "enough_tokens", "is_hidden"]

HIDDEN: Final = 0.05
"""Share of a step below which waiting for communication counts as hidden. [1]"""

LARGEST_BATCH: Final = 1024
"""Sequences of a micro-batch beyond which nobody looks. [count]"""

FASTEST: Final = 2.0**12
"""Times the bandwidth beyond which nobody looks. [1]"""

CLOSE: Final = 1.02
"""Ratio of what does not suffice to what does at which the search ends. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """What hides the communication, and what there is."""

    now: float
    """Tokens of a GPU and micro-step, or bytes a second."""
    needed: float | None
    """The least that was found to suffice; None where nothing within reach does."""
    verdict: Verdict | None
    """Of the memory there."""


def is_hidden(found: StrategyEstimate) -> bool:
    """Whether a step hardly waits for communication."""
    waits, step = found.time.exposed_communication_seconds, found.time.step_seconds
    return (waits or 0.0) <= HIDDEN * (step or 0.0)


def enough_tokens(question: Question, now: StrategyEstimate, profiles: Path | None) -> Enough:
    """Find the least micro-batch at which communication is hidden, the sequence as it is.

    More sequences mean more to compute for the same gathers and reductions.
    """
    length = question.run.training.sequence_length or 1
    batch = question.run.training.micro_batch_size

    def at(sequences: int) -> StrategyEstimate | None:
        keys = {"training.micro_batch_size": sequences}
        return tried_out(question, now.strategy, keys, profiles)

    too_few, found = 0, _hiding(at(batch))
    sequences = batch
    while found is None and sequences < LARGEST_BATCH:
        too_few, sequences = sequences, min(2 * sequences, LARGEST_BATCH)
        found = _hiding(at(sequences))
    while found is not None and sequences - too_few > 1:
        between = (sequences + too_few) // 2
        other = _hiding(at(between))
        if other is None:
            too_few = between
        else:
            sequences, found = between, other
    return Enough(
        now=batch * length,
        needed=None if found is None else sequences * length,
        verdict=None if found is None else found.verdict,
    )


def enough_bandwidth(question: Question, row: Sharding) -> Enough:
    """Find the least bandwidth at which communication is hidden, latencies as they are.

    Between nodes it is what all NICs of a node carry, on a single node the link of a GPU. [B/s]
    """
    wires, several = question.wires, question.run.cluster.gpus > question.wires.gpus_per_node

    def at(factor: float) -> StrategyEstimate | None:
        changed = replace(
            question, wires=_faster(wires, factor, several=several), strategies=(row,)
        )
        return _hiding(answer(changed).estimates[0])

    now = wires.node_bytes_per_second if several else wires.intra.bandwidth_bytes_per_second.value
    factor = _least(at)
    found = None if factor is None else at(factor)
    return Enough(
        now=now,
        needed=None if factor is None else factor * now,
        verdict=None if found is None else found.verdict,
    )


T = TypeVar("T")


def _least(at: Callable[[float], T | None]) -> float | None:
    """Find the least factor that suffices, between a thousandth of the range and its end."""
    enough = 1.0
    if at(enough) is None:
        while at(enough) is None:
            if enough >= FASTEST:
                return None
            enough *= 2
        too_little = enough / 2
    else:
        while at(enough / 2) is not None and enough > 1 / FASTEST:
            enough /= 2
        too_little = enough / 2
    while enough / too_little > CLOSE:
        between = (enough * too_little) ** 0.5
        if at(between) is None:
            too_little = between
        else:
            enough = between
    return enough


def _hiding(found: StrategyEstimate | None) -> StrategyEstimate | None:
    return found if found is not None and is_hidden(found) else None


def _faster(wires: Fabric, factor: float, *, several: bool) -> Fabric:
    """Return links whose bandwidth between nodes, or inside one, is a multiple of what it is."""
    if not several:
        return replace(wires, intra=_scaled(wires.intra, factor))
    total = wires.node_bytes_per_second * factor
    return replace(wires, inter=_scaled(wires.inter, factor), node_bytes_per_second=total)


def _scaled(link: Link, factor: float) -> Link:
    host = link.host_bytes_per_second
    return replace(
        link,
        bandwidth_bytes_per_second=_times(link.bandwidth_bytes_per_second, factor),
        host_bytes_per_second=None if host is None else _times(host, factor),
    )


def _times(quantity: Quantity, factor: float) -> Quantity:
    return replace(quantity, value=quantity.value * factor)
