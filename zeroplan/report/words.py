"""An answer in sentences: what fits, what is fastest, what it all rests on."""

from collections.abc import Iterator
from typing import Final

from zeroplan.estimation.record import Assumption, Estimate, StrategyEstimate, Verdict
from zeroplan.records import replace
from zeroplan.rows import plain, readable, significant
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.applies import applies
from zeroplan.spec.hints import spelled
from zeroplan.spec.reading import flatten, keys
from zeroplan.spec.run import Run
from zeroplan.units import GIB

__all__ = ["LEGEND", "assumptions", "defaults", "precisions", "trained", "verdicts"]

CHOSEN_BY_WORD: Final = ("cluster.link", "cluster.intra_link")
"""Keys whose words, such as ib, leave the generation to the GPU."""

LEGEND: Final = (
    "The peak is the most that tensors take at once; activations and buffers are what lives then. "
    "Parameters, gradients and optimizer states are what a GPU owns, whether it lives then or not, so "
    "that a row need not add up to its peak. Device adds what the allocator keeps, the CUDA "
    "context and NCCL. Exposed is the communication that the GPU waits for."
)
"""What the tables of memory and time count."""


def verdicts(answer: Estimate) -> Iterator[str]:
    """Say which strategies fit, and of those the fastest and what binds it."""
    words: dict[Verdict, str] = {"fits": "Fits", "tight": "Tight", "does_not_fit": "Does not fit"}
    for verdict, word in words.items():
        named = [
            each.strategy
            for each in answer.estimates
            if each.verdict == verdict and (each.fits or verdict == "does_not_fit")
        ]
        if named:
            yield f"{word}: {', '.join(named)}."
    yield from _hosts(answer)
    if answer.fastest is not None:
        yield from _fastest(answer, answer.fastest)
    elif not answer.fits:
        yield _nearest(answer)


def trained(answer: Estimate) -> Iterator[str]:
    """Say how much of the model is trained, where that is not everything."""
    total, part = answer.total_parameters, answer.trainable_parameters
    if part < total:
        share = significant(100 * part / total)
        yield f"Trains {part:,} of {total:,} parameters ({share} %)."


def defaults(answer: Estimate, asked: Run) -> Iterator[str]:
    """List the keys left to their defaults, as resolved, where a strategy of the answer reads them.

    A word that stands for one of several, as a link's does, is among them with what it became.
    """
    strategies = [each.strategy for each in answer.estimates]
    resolved = flatten(plain(answer.inputs))
    tables: dict[str, list[str]] = {}
    for dotted, value in flatten(plain(asked)).items():
        found, (table, _, name) = resolved[dotted], dotted.rpartition(".")
        if value == keys()[dotted].default and applies(dotted, strategies):
            tables.setdefault(table, []).append(f"{name} {spelled(found)}")
        elif value != found and dotted in CHOSEN_BY_WORD:
            tables.setdefault(table, []).append(f"{name} {found}, the usual {value}")
    for table, chosen in tables.items():
        yield f"{table}: {', '.join(chosen)}"


def assumptions(answer: Estimate) -> Iterator[str]:
    """List the figures that are neither from a datasheet nor measured, with their source."""
    for each in answer.assumptions:
        if each.kind in ("assumed", "fitted"):
            yield f"{each.name} {_value(each)} ({each.kind}: {each.source})"


def precisions(answer: Estimate) -> Iterator[str]:
    """Say where DeepSpeed stores parameters in another dtype than the rows beside it."""
    training = answer.inputs.training
    rows = [STRATEGIES[each.strategy] for each in answer.estimates]
    named = [row.strategy for row in rows if row.framework == "deepspeed"]
    if (
        0 < len(named) < len(answer.estimates)
        and training.compute_dtype != training.parameter_dtype
    ):
        what = "adapters in " if answer.inputs.tuning.lora_rank else ""
        yield (
            f"DeepSpeed ({', '.join(named)}) stores {training.compute_dtype} and counts its fp32 "
            f"copy as optimizer states; the others store {what}{training.parameter_dtype}."
        )


def _hosts(answer: Estimate) -> Iterator[str]:
    """Say for which strategies a node has too little host memory, and where loading would fail."""
    short = [
        each.strategy for each in answer.estimates if each.memory.host_verdict == "does_not_fit"
    ]
    if short:
        yield f"Host memory does not suffice: {', '.join(short)}."
    memory = answer.estimates[0].memory
    loads = answer.inputs.training.load is None and memory.host_memory_bytes is not None
    if loads and memory.host_load_bytes > (memory.host_memory_bytes or 0):
        yield (
            f"Weights read by every rank would take {significant(memory.host_load_bytes / GIB)} GiB "
            "of host memory a node: load them on one rank (load rank0) or in parts (sharded)."
        )


def _fastest(answer: Estimate, fastest: StrategyEstimate) -> Iterator[str]:
    """Name the fastest; one that is tight above the limit is not said to fit."""
    if (fastest.memory.headroom_bytes or 0) >= 0:
        yield _told(fastest, "Fastest that fits")
        return
    yield _told(fastest, "Fastest, but above the limit")
    others = tuple(each for each in answer.estimates if (each.memory.headroom_bytes or 0) >= 0)
    best = replace(answer, estimates=others).fastest
    if best is not None:
        yield _told(best, "Fastest that fits")


def _told(each: StrategyEstimate, what: str) -> str:
    time = each.time
    seconds = f"{significant(time.step_seconds or 0)} s per step"
    if time.low_seconds is not None and time.high_seconds is not None:
        seconds += f" ({significant(time.low_seconds)} to {significant(time.high_seconds)} s)"
    bound = (time.bound_by or "an unknown part").replace("_", " ")
    tight = " (tight)" if each.verdict == "tight" else ""
    sentence = f"{what}: {each.strategy}{tight}, {seconds}, bound by {bound}"
    if time.exposed_communication_seconds is None or not each.communication.wire_bytes:
        return f"{sentence}."
    exposed = significant(time.exposed_communication_seconds)
    return f"{sentence}; it waits {exposed} s for communication."


def _nearest(answer: Estimate) -> str:
    short = [
        (-each.memory.headroom_bytes, each.strategy)
        for each in answer.estimates
        if each.memory.headroom_bytes is not None and each.verdict == "does_not_fit"
    ]
    if not short:
        return "Nothing fits."
    missing, strategy = min(short)
    return f"Nothing fits. {strategy} is nearest: {significant(missing / GIB)} GiB too big."


def _value(each: Assumption) -> str:
    if isinstance(each.value, int | float):
        return readable(each.value, each.unit)
    return "not known" if each.value is None else str(each.value)
