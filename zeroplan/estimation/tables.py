"""An answer as two tables, for the terminal, the notebook and the page alike."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from zeroplan.estimation.record import Budget, Estimate, PeakBreakdown, StrategyEstimate
from zeroplan.records import replace
from zeroplan.rows import Cell, Column, Table, significant, text
from zeroplan.units import DAY, GB, GIB, GIGA, HOUR, MEGA, TERA

__all__ = [
    "BUDGET",
    "COSTS",
    "Figure",
    "gib",
    "percent",
    "span",
    "tables",
    "tokens_words",
    "verdict_words",
]


class Figure(NamedTuple):
    """A column and how it reads one strategy's estimate."""

    name: str
    of: Callable[[StrategyEstimate], Cell]
    unit: str = ""
    is_text: bool = False


def tables(answer: Estimate, *, wide: bool = False) -> Iterator[Table]:
    """Yield the tables of an answer in reading order."""
    yield memory_table(answer, wide=wide)
    host = host_table(answer)
    if host is not None:
        yield host
    yield time_table(answer, wide=wide)
    tokens = tokens_table(answer)
    if tokens is not None:
        yield tokens


def memory_table(answer: Estimate, *, wide: bool = False) -> Table:
    """Return the memory of each strategy [GiB].

    The states count what a GPU owns, live or not; activations and buffers are those of the peak.
    """
    adam = answer.inputs.training.optimizer.startswith("adam")
    figures = (
        _STRATEGY,
        Figure("para\u00admeters", lambda each: gib(each.memory.parameters_bytes)),
        Figure("gradi\u00adents", lambda each: gib(each.memory.gradients_bytes)),
        Figure(
            "Adam states" if adam else "optimizer states",
            lambda each: gib(each.memory.optimizer_bytes),
        ),
        Figure(
            "activa\u00adtions", lambda each: gib(_activations(each.memory.peak_breakdown_bytes))
        ),
        Figure("buffers", lambda each: gib(_buffers(each.memory.peak_breakdown_bytes))),
        Figure("peak", lambda each: gib(each.memory.peak_allocated_bytes)),
        Figure("where", lambda each: each.memory.peak_moment, is_text=True),
        *(_WIDE_MEMORY if wide else ()),
        Figure("device", lambda each: gib(each.memory.device_bytes)),
        Figure("verdict", verdict_words, is_text=True),
    )
    usable = gib(answer.estimates[0].memory.usable_bytes)
    return _table(f"Memory per GPU [GiB], {text(usable)} usable", figures, answer)


def host_table(answer: Estimate) -> Table | None:
    """Return the host memory of each strategy [GiB], where states are there or it is limited."""
    available = answer.estimates[0].memory.host_memory_bytes
    if available is None and not answer.inputs.offloads:
        return None
    figures = (
        _STRATEGY,
        Figure("held", lambda each: gib(each.memory.host_bytes)),
        Figure("while loading", lambda each: gib(each.memory.host_load_bytes)),
        Figure("while saving", lambda each: gib(each.memory.host_save_bytes)),
        Figure("on drives", lambda each: gib(each.memory.nvme_bytes)),
        Figure("check­point", lambda each: gib(each.memory.checkpoint_bytes)),
        Figure("verdict", _host_verdict, is_text=True),
    )
    has = "size not known" if available is None else f"{text(gib(available))} there"
    return _table(f"Host memory per node [GiB], {has}", figures, answer)


def _host_verdict(each: StrategyEstimate) -> str:
    return (each.memory.host_verdict or "-").replace("_", " ")


def time_table(answer: Estimate, *, wide: bool = False) -> Table:
    """Return the communication and the step time of each strategy."""
    figures = (
        _STRATEGY,
        *(
            Figure(name.replace("_", "-\u00ad"), _seconds_of(name), "s")
            for name in ("all_gather", "reduce_scatter", "all_reduce")
        ),
        Figure("exposed of comm.", _exposed_share, "%"),
        Figure("sent between nodes", _inter_node_gb, "GB"),
        *(_OFFLOAD if answer.inputs.offloads else ()),
        *(_WIDE_TIME if wide else ()),
        Figure("step", lambda each: each.time.step_seconds, "s"),
        Figure("tokens/s /GPU", lambda each: each.time.tokens_per_second_per_gpu),
        Figure("MFU", lambda each: percent(each.time.model_flops_utilization), "%"),
    )
    return _table("Time per step", figures, answer)


def tokens_table(answer: Estimate) -> Table | None:
    """Return what a number of tokens takes with each strategy that fits, where that is asked."""
    fitting = tuple(each for each in answer.estimates if each.fits and each.budget)
    if not fitting:
        return None
    budget = fitting[0].budget
    figures = (_STRATEGY, *BUDGET, *(COSTS if budget and budget.cost_usd is not None else ()))
    title = f"{tokens_words(budget.tokens if budget else 0)} tokens"
    return _table(title, figures, replace(answer, estimates=fitting))


def tokens_words(tokens: int) -> str:
    """Return a number of tokens as people write it: 2T, 300B."""
    for scale, letter in ((TERA, "T"), (GIGA, "B"), (MEGA, "M")):
        if tokens >= scale:
            return f"{significant(tokens / scale)}".removesuffix(".00") + letter
    return f"{tokens:,}"


def span(low: float | None, high: float | None) -> str | None:
    """Return the ends of a band, as few digits as its width deserves."""
    return None if low is None or high is None else f"{significant(low, 2)}-{significant(high, 2)}"


def verdict_words(each: StrategyEstimate) -> str:
    """Return the verdict as a person says it."""
    return each.verdict.replace("_", " ")


def _table(title: str, figures: tuple[Figure, ...], answer: Estimate) -> Table:
    return Table(
        title=title,
        columns=tuple(
            Column(name=figure.name, unit=figure.unit, is_text=figure.is_text) for figure in figures
        ),
        rows=tuple(tuple(figure.of(each) for figure in figures) for each in answer.estimates),
    )


def gib(size: int | None) -> float | None:
    """Return a size for a reader. [GiB]"""
    return None if size is None else size / GIB


def percent(share: float | None) -> float | None:
    """Return a share for a reader. [%]"""
    return None if share is None else share * 100


def _activations(peak: PeakBreakdown) -> int:
    return peak.activations + peak.loss


def _buffers(peak: PeakBreakdown) -> int:
    """Return what is neither a state nor an activation [B]."""
    return (
        peak.unsharded_parameters
        + peak.unsharded_gradients
        + peak.all_gather_buffers
        + peak.reduce_scatter_buffers
        + peak.temporaries
        + peak.workspaces
        + peak.other
    )


def _seconds_of(name: str) -> Callable[[StrategyEstimate], float | None]:
    return lambda each: each.communication.seconds(name)


def _exposed_share(each: StrategyEstimate) -> float | None:
    """Return the share of the communication that the compute stream waits for [%]."""
    exposed, total = each.time.exposed_communication_seconds, each.time.communication_seconds
    return exposed / total * 100 if total and exposed is not None else None


def _inter_node_gb(each: StrategyEstimate) -> float:
    return each.communication.inter_node_wire_bytes / GB


def _budgeted(of: Callable[[Budget], Cell]) -> Callable[[StrategyEstimate], Cell]:
    return lambda each: None if each.budget is None else of(each.budget)


BUDGET: Final = (
    Figure("steps", _budgeted(lambda asked: f"{asked.steps:,}")),
    Figure("days", _budgeted(lambda asked: asked.run_seconds / DAY)),
    Figure(
        "band",
        _budgeted(lambda asked: span(asked.low_run_seconds / DAY, asked.high_run_seconds / DAY)),
    ),
    Figure("GPU- hours", _budgeted(lambda asked: asked.gpu_seconds / HOUR)),
    Figure(
        "band",
        _budgeted(lambda asked: span(asked.low_gpu_seconds / HOUR, asked.high_gpu_seconds / HOUR)),
    ),
)
COSTS: Final = (
    Figure("cost", _budgeted(lambda asked: asked.cost_usd), "USD"),
    Figure("band", _budgeted(lambda asked: span(asked.low_cost_usd, asked.high_cost_usd))),
)
_STRATEGY = Figure("strategy", lambda each: each.strategy, is_text=True)
_WIDE_MEMORY = (
    Figure("forward peak", lambda each: gib(each.memory.peak_by_phase_bytes.forward)),
    Figure("backward peak", lambda each: gib(each.memory.peak_by_phase_bytes.backward)),
    Figure("optimizer peak", lambda each: gib(each.memory.peak_by_phase_bytes.optimizer)),
    Figure("reserved", lambda each: gib(each.memory.reserved_bytes)),
    Figure("headroom", lambda each: gib(each.memory.headroom_bytes)),
)
_OFFLOAD = (Figure("for the host", lambda each: each.time.exposed_offload_seconds, "s"),)
_WIDE_TIME = (
    Figure("all-to-all", _seconds_of("all_to_all"), "s"),
    Figure("broadcast", _seconds_of("broadcast"), "s"),
    Figure("sent", lambda each: each.communication.wire_bytes / GB, "GB"),
    Figure("compute", lambda each: each.time.compute_seconds, "s"),
    Figure("optimizer", lambda each: each.time.optimizer_seconds, "s"),
    Figure("low", lambda each: each.time.low_seconds, "s"),
    Figure("high", lambda each: each.time.high_seconds, "s"),
    Figure("bound by", lambda each: (each.time.bound_by or "-").replace("_", " "), is_text=True),
    Figure("HFU", lambda each: percent(each.time.hardware_flops_utilization), "%"),
)
