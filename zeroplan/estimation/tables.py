"""An answer as two tables, for the terminal, the notebook and the page alike."""

from collections.abc import Callable
from typing import NamedTuple

from zeroplan.estimation.record import Estimate, PeakBreakdown, StrategyEstimate
from zeroplan.rows import Cell, Column, Table, text
from zeroplan.units import GB, GIB

__all__ = ["host_table", "memory_table", "time_table", "verdict_words"]


class _Figure(NamedTuple):
    """A column and how it reads one strategy's estimate."""

    name: str
    of: Callable[[StrategyEstimate], Cell]
    unit: str = ""
    is_text: bool = False


def memory_table(answer: Estimate, *, wide: bool = False) -> Table:
    """Return the memory of each strategy [GiB].

    The states count what a GPU owns, live or not; activations and buffers are those of the peak.
    """
    adam = answer.inputs.training.optimizer.startswith("adam")
    figures = (
        _STRATEGY,
        _Figure("para\u00admeters", lambda each: _gib(each.memory.parameters_bytes)),
        _Figure("gradi\u00adents", lambda each: _gib(each.memory.gradients_bytes)),
        _Figure(
            "Adam states" if adam else "optimizer states",
            lambda each: _gib(each.memory.optimizer_bytes),
        ),
        _Figure(
            "activa\u00adtions", lambda each: _gib(_activations(each.memory.peak_breakdown_bytes))
        ),
        _Figure("buffers", lambda each: _gib(_buffers(each.memory.peak_breakdown_bytes))),
        _Figure("peak", lambda each: _gib(each.memory.peak_allocated_bytes)),
        _Figure("where", lambda each: each.memory.peak_moment, is_text=True),
        *(_WIDE_MEMORY if wide else ()),
        _Figure("device", lambda each: _gib(each.memory.device_bytes)),
        _Figure("verdict", verdict_words, is_text=True),
    )
    usable = _gib(answer.estimates[0].memory.usable_bytes)
    return _table(f"Memory per GPU [GiB], {text(usable)} usable", figures, answer)


def host_table(answer: Estimate) -> Table | None:
    """Return the host memory of each strategy [GiB], where states are there or it is limited."""
    available = answer.estimates[0].memory.host_memory_bytes
    if available is None and not answer.inputs.offloads:
        return None
    figures = (
        _STRATEGY,
        _Figure("held", lambda each: _gib(each.memory.host_bytes)),
        _Figure("while loading", lambda each: _gib(each.memory.host_load_bytes)),
        _Figure("while saving", lambda each: _gib(each.memory.host_save_bytes)),
        _Figure("on drives", lambda each: _gib(each.memory.nvme_bytes)),
        _Figure("check­point", lambda each: _gib(each.memory.checkpoint_bytes)),
        _Figure("verdict", _host_verdict, is_text=True),
    )
    has = "size not known" if available is None else f"{text(_gib(available))} there"
    return _table(f"Host memory per node [GiB], {has}", figures, answer)


def _host_verdict(each: StrategyEstimate) -> str:
    return (each.memory.host_verdict or "-").replace("_", " ")


def time_table(answer: Estimate, *, wide: bool = False) -> Table:
    """Return the communication and the step time of each strategy."""
    figures = (
        _STRATEGY,
        *(
            _Figure(name.replace("_", "-\u00ad"), _seconds_of(name), "s")
            for name in ("all_gather", "reduce_scatter", "all_reduce")
        ),
        _Figure("exposed", _exposed_share, "%"),
        _Figure("sent between nodes", _inter_node_gb, "GB"),
        *(_OFFLOAD if answer.inputs.offloads else ()),
        *(_WIDE_TIME if wide else ()),
        _Figure("step", lambda each: each.time.step_seconds, "s"),
        _Figure("tokens/s /GPU", lambda each: each.time.tokens_per_second_per_gpu),
        _Figure("MFU", lambda each: _percent(each.time.model_flops_utilization), "%"),
    )
    return _table("Time per step", figures, answer)


def verdict_words(each: StrategyEstimate) -> str:
    """Return the verdict as a person says it."""
    return each.verdict.replace("_", " ")


def _table(title: str, figures: tuple[_Figure, ...], answer: Estimate) -> Table:
    return Table(
        title=title,
        columns=tuple(
            Column(name=figure.name, unit=figure.unit, is_text=figure.is_text) for figure in figures
        ),
        rows=tuple(tuple(figure.of(each) for figure in figures) for each in answer.estimates),
    )


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _percent(share: float | None) -> float | None:
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


_STRATEGY = _Figure("strategy", lambda each: each.strategy, is_text=True)
_WIDE_MEMORY = (
    _Figure("forward peak", lambda each: _gib(each.memory.peak_by_phase_bytes.forward)),
    _Figure("backward peak", lambda each: _gib(each.memory.peak_by_phase_bytes.backward)),
    _Figure("optimizer peak", lambda each: _gib(each.memory.peak_by_phase_bytes.optimizer)),
    _Figure("reserved", lambda each: _gib(each.memory.reserved_bytes)),
    _Figure("headroom", lambda each: _gib(each.memory.headroom_bytes)),
)
_OFFLOAD = (_Figure("for the host", lambda each: each.time.exposed_offload_seconds, "s"),)
_WIDE_TIME = (
    _Figure("all-to-all", _seconds_of("all_to_all"), "s"),
    _Figure("broadcast", _seconds_of("broadcast"), "s"),
    _Figure("sent", lambda each: each.communication.wire_bytes / GB, "GB"),
    _Figure("compute", lambda each: each.time.compute_seconds, "s"),
    _Figure("optimizer", lambda each: each.time.optimizer_seconds, "s"),
    _Figure("low", lambda each: each.time.low_seconds, "s"),
    _Figure("high", lambda each: each.time.high_seconds, "s"),
    _Figure("bound by", lambda each: (each.time.bound_by or "-").replace("_", " "), is_text=True),
    _Figure("HFU", lambda each: _percent(each.time.hardware_flops_utilization), "%"),
)
