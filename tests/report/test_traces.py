"""Traces: viewers can read them, and they tell the step that is estimated."""

import json
import pickle
import pickletools
from functools import cache
from typing import Any

import pytest

from zeroplan import estimate, load_spec
from zeroplan.estimation.choice import choose
from zeroplan.estimation.explain_case import Case, case_of
from zeroplan.estimation.resolve import resolve
from zeroplan.report.traces import chrome_trace, memory_snapshot

ASKED: Any = {"model": "llama-3.1-8b", "gpus": 16, "link": "ib", "strategy": "fsdp2"}

READ_BY_THE_VIEWER = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "NONE", "NEWFALSE"),
    *("EMPTY_DICT", "EMPTY_LIST", "SETITEM", "SETITEMS", "APPEND", "APPENDS"),
    *("BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINUNICODE", "BINUNICODE"),
}
"""Opcodes of a pickle that torch/utils/viz/MemoryViz.js of PyTorch knows."""


@cache
def _case() -> Case:
    chosen = choose(resolve(load_spec(**ASKED)))
    return case_of(chosen.question, chosen.estimate, None)


@cache
def _events(phase: str) -> list[dict[str, Any]]:
    events = json.loads(chrome_trace(_case()))["traceEvents"]
    return [event for event in events if event["ph"] == phase]


@cache
def _snapshot() -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(memory_snapshot(_case()))
    return found


def test_every_event_lies_within_the_step() -> None:
    (found,) = estimate(**ASKED).estimates
    ends = [event["ts"] + event["dur"] for event in _events("X")]
    assert max(ends) * 1e-6 == pytest.approx(found.time.step_seconds)
    assert min(event["ts"] for event in _events("X")) == 0
    assert len(ends) == len(list(_case().step.unrolled()))


def test_every_stream_is_a_track_with_a_name() -> None:
    names = {e["tid"]: e["args"]["name"] for e in _events("M") if e["name"] == "thread_name"}
    assert {event["tid"] for event in _events("X")} == set(names)
    assert set(names.values()) == {"compute", "all-gather", "reduce-scatter"}


def test_the_counter_peaks_where_the_estimate_does_and_never_goes_back() -> None:
    counters = _events("C")
    (found,) = estimate(**ASKED).estimates
    assert max(sum(c["args"].values()) for c in counters) == found.memory.peak_tensor_bytes
    times = [counter["ts"] for counter in counters]
    assert times == sorted(times)
    assert set(counters[0]["args"]) >= {"parameters", "optimizer", "activations", "buffers"}


def test_a_collective_tells_its_ranks_and_bytes() -> None:
    gather = next(e for e in _events("X") if e["args"].get("collective") == "all_gather")
    assert gather["args"]["ranks"] == 16
    assert gather["args"]["message_bytes"] > 1_000_000


def test_the_history_reaches_the_peak_and_ends_with_what_is_live() -> None:
    snapshot = _snapshot()
    signs = {"alloc": 1, "free_completed": -1, "free_requested": 0}
    (history,) = snapshot["device_traces"]
    changes = [signs[entry["action"]] * entry["size"] for entry in history]
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    at_end = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    live = highest = at_end - sum(changes)
    for change in changes:
        live += change
        highest = max(highest, live)
    (found,) = estimate(**ASKED).estimates
    assert highest == found.memory.peak_tensor_bytes
    assert live == at_end == sum(change.bytes for change in _case().step.resident)


def test_nothing_is_freed_twice_and_no_address_is_used_twice() -> None:
    (history,) = _snapshot()["device_traces"]
    allocated = [entry["addr"] for entry in history if entry["action"] == "alloc"]
    freed = [entry["addr"] for entry in history if entry["action"] == "free_completed"]
    assert len(set(allocated)) == len(allocated) > 1000
    assert len(set(freed)) == len(freed)
    times = [entry["time_us"] for entry in history]
    assert times == sorted(times)


def test_a_segment_is_covered_by_its_blocks() -> None:
    (segment,) = _snapshot()["segments"]
    address = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == address
        address += block["size"]
    assert address == segment["address"] + segment["total_size"]


def test_the_pickle_is_of_opcodes_that_the_viewer_knows() -> None:
    used = {opcode.name for opcode, _, _ in pickletools.genops(memory_snapshot(_case()))}
    assert used <= READ_BY_THE_VIEWER
    assert memory_snapshot(_case()) == memory_snapshot(_case())


@pytest.mark.torch
def test_pytorch_reads_the_snapshot() -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = _snapshot()
    entries = len(snapshot["device_traces"][0])
    assert f"{entries} entries" in viz.trace(snapshot)
    assert "active_allocated" in viz.segments(snapshot, format_flamegraph=str)
    assert "parameters" in viz.memory(snapshot, format_flamegraph=str)
    assert "Active Memory Timeline" in viz.trace_plot(snapshot)
    assert "Allocator State History" in viz.segment_plot(snapshot)
    kept = viz.filter_alloc_free_pairs(pickle.loads(memory_snapshot(_case())))
    assert len(kept["device_traces"][0]) < entries
