"""Words that several charts share."""

from collections.abc import Iterator, Sequence
from typing import Final

from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.estimation.several import Comparison
from zeroplan.rows import significant
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.run import Run, Strategy
from zeroplan.units import GIB, HOUR, MIB, MICRO, MILLI

__all__ = [
    "Answer",
    "about",
    "byte_unit",
    "duration",
    "joined",
    "labelled",
    "named",
    "percent",
    "shortened",
    "size_words",
    "time_unit",
]

Answer = Estimate | Comparison
"""One question or several side by side."""

LONGEST: Final = 34
"""Letters of a name that leave room for the chart."""

KIB: Final = 2**10
TIB: Final = 2**40
MANY: Final = 10_000
"""GiB from which TiB are easier to read. [count]"""

NEARLY_ALL: Final = 0.99
"""Share above which a digit more tells how much is left. [1]"""

STRATEGY: Final = "sharding.strategy"


def byte_unit(size: float) -> tuple[float, str]:
    """Return the unit in which a size is a number of at most four digits before the point [B]."""
    for unit, word in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size >= (MANY * GIB if unit == TIB else unit):
            return unit, word
    return KIB, "KiB"


def size_words(size: float) -> str:
    """Return bytes as a person reads them: in GiB, unless that is very many or less than one."""
    unit, word = byte_unit(size)
    return f"{significant(size / unit)} {word}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit that a person would choose for a time [s]."""
    for unit, word, least in ((HOUR, "h", 3 * HOUR), (1.0, "s", 1.0), (MILLI, "ms", MILLI)):
        if seconds >= least:
            return unit, word
    return MICRO, "us"


def duration(seconds: float) -> str:
    """Return seconds in the unit that a person would choose."""
    unit, word = time_unit(seconds)
    return f"{significant(seconds / unit)} {word}"


def percent(share: float) -> str:
    """Return a share of one in hundredths."""
    return f"{significant(100 * share, 3 if share > NEARLY_ALL else 2)} %"


def joined(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def shortened(name: str, longest: int = LONGEST) -> str:
    """Return a name without its middle where it is too long."""
    if len(name) <= longest:
        return name
    left = (longest - 1) // 2
    return f"{name[:left]}…{name[left + 1 - longest :]}"


def about(run: Run, *, gpus: bool = True, link: bool = True, batch: bool = True) -> str:
    """Return what a chart is about: model, GPUs and batch of a resolved run."""
    cluster, training = run.cluster, run.training
    count = f"{cluster.gpus:,} x " if gpus else ""
    parts = [shortened(run.model.source, 60), f"{count}{cluster.gpu}"]
    if gpus and link and cluster.gpus_per_node and cluster.gpus > cluster.gpus_per_node:
        parts.append(str(cluster.link))
    steps = training.gradient_accumulation_steps
    micro = f"{training.micro_batch_size} x {training.sequence_length:,} tokens per GPU"
    if batch:
        parts.append(micro + (f", {steps} micro-steps" if steps > 1 else ""))
    return " · ".join(parts)


def labelled(told: Answer) -> Iterator[tuple[str, Run, StrategyEstimate]]:
    """Yield every estimate with the name that tells it from the others, and its run."""
    if isinstance(told, Estimate):
        yield from ((named(each.strategy), told.inputs, each) for each in told.estimates)
        return
    for one in told.answers:
        values = ", ".join(shortened(value) for key, value in one.values if key != STRATEGY)
        for each in one.answer.estimates:
            name = named(each.strategy)
            yield f"{name} ({values})" if values else name, one.answer.inputs, each


def named(strategy: Strategy) -> str:
    """Return what a strategy is called in a sentence."""
    return strategy if STRATEGIES[strategy].distributed else STRATEGIES[strategy].title
