"""What a trace of a step says of collectives and of waiting, worked out by hand."""

from typing import Any

import pytest

from zeroplan.validate.measurement import spread
from zeroplan.validate.trace import bus_times, read_trace

NCCL = {
    "Collective name": "_allgather_base",
    "In msg nelems": 100,
    "Out msg nelems": 800,
    "Group size": 8,
    "dtype": "BFloat16",
}


def kernel(start: float, length: float, stream: int = 7, **facts: Any) -> dict[str, Any]:
    """An event as kineto writes it; times in microseconds."""
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "ts": start,
        "dur": length,
        "args": {"stream": stream, **facts},
    }


def trace(*events: dict[str, Any]) -> dict[str, Any]:
    """A document with some events that keep no stream busy."""
    others = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0.0, "dur": 900.0, "args": {}},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        {"ph": "X", "cat": "user_annotation", "name": "step", "ts": 0.0, "dur": 900.0},
    ]
    return {"traceEvents": [*others, *events]}


def test_communication_under_compute_is_not_exposed() -> None:
    found = read_trace(trace(kernel(0, 100), kernel(10, 50, 20, **NCCL)))
    assert found is not None
    assert found.communication_seconds == pytest.approx(50e-6)
    assert found.exposed_seconds == pytest.approx(0.0)


def test_what_runs_while_the_compute_stream_idles_is_exposed() -> None:
    """Compute at 0-10 and 40-100; collectives at 5-25 and 20-50: they run at 5-50, 10-40 is bare."""
    events = (kernel(0, 10), kernel(40, 60), kernel(5, 20, 20, **NCCL), kernel(20, 30, 24, **NCCL))
    found = read_trace(trace(*events))
    assert found is not None
    assert found.communication_seconds == pytest.approx(50e-6)
    assert found.exposed_seconds == pytest.approx(30e-6)


def test_copies_beside_the_compute_stream_hide_nothing() -> None:
    """The compute stream is the one that is busy longest."""
    events = (kernel(0, 100), kernel(100, 50, 20, **NCCL), kernel(100, 50, 24))
    found = read_trace(trace(*events))
    assert found is not None
    assert found.exposed_seconds == pytest.approx(50e-6)


def test_without_a_collective_nothing_is_communicated() -> None:
    found = read_trace(trace(kernel(0, 100)))
    assert found is not None
    assert (found.communication_seconds, found.exposed_seconds, found.calls) == (0, 0, ())


def test_a_profiler_that_sees_no_stream_says_nothing() -> None:
    assert read_trace(trace()) is None


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("_allgather_base", "all_gather"),
        ("allgather", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
    ],
)
def test_collectives_are_named_as_everywhere(told: str, name: str) -> None:
    found = read_trace(trace(kernel(0, 1, 20, **{**NCCL, "Collective name": told})))
    assert found is not None
    assert [call.name for call, _ in found.calls] == [name]


def test_calls_of_one_size_are_told_together_over_steps() -> None:
    first = read_trace(trace(kernel(0, 10, 20, **NCCL), kernel(20, 30, 20, **NCCL)))
    second = read_trace(trace(kernel(0, 20, 20, **NCCL), kernel(20, 40, 20, **NCCL)))
    assert first is not None
    assert second is not None
    (found,) = bus_times([first, second])
    assert (found.name, found.ranks, found.count) == ("all_gather", 8, 2)
    assert (found.input_bytes, found.output_bytes) == (200, 1600)
    assert found.seconds.median == pytest.approx(spread([10e-6, 20e-6, 30e-6, 40e-6]).median)
    assert found.seconds.repeats == 4
