"""One clock per stream: who waits for whom, and what a repeat takes."""

from dataclasses import replace

import pytest

from zeroplan.comm.collectives import collective_seconds
from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice, gpu_price
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule.events import Collective, Event, Item, Repeat, Script
from zeroplan.sharding.groups import contiguous
from zeroplan.spec.toml import load_spec
from zeroplan.timing.walk import Timing, walk

QUESTION = resolve(load_spec(model="smollm-135m", gpus=16))
GPU: GpuPrice = gpu_price(QUESTION.gpu, "bf16")
WIRES: Fabric = QUESTION.wires
GATHER = Collective(
    name="all_gather", group=contiguous("world", 16, 8), input_bytes=2**24, output_bytes=2**28
)
SENT = collective_seconds(GATHER, WIRES)
WORK = SENT / 3
KERNEL = Event(
    name="kernel",
    phase="forward",
    stream="compute",
    owner="block",
    traffic_bytes=WORK * GPU.bytes_per_second,
)
SEND = Event(
    name="all-gather", phase="forward", stream="all-gather", owner="block", collective=GATHER
)


def test_streams_run_side_by_side() -> None:
    timing = _walk(SEND, KERNEL)
    assert timing.step_seconds == pytest.approx(SENT)
    assert timing.compute_seconds == pytest.approx(WORK)
    assert timing.exposed_communication_seconds == pytest.approx(SENT - WORK)


def test_what_waits_starts_when_the_other_stream_has_ended() -> None:
    timing = _walk(SEND, replace(KERNEL, waits=("all-gather",)))
    assert timing.step_seconds == pytest.approx(SENT + WORK)


def test_waiting_for_a_mark_is_waiting_for_that_event_alone() -> None:
    marked = replace(SEND, mark="first")
    timing = _walk(marked, SEND, replace(KERNEL, waits=("first",)))
    assert timing.step_seconds == pytest.approx(2 * SENT)
    assert _walk(marked, SEND, replace(KERNEL, waits=("all-gather",))).step_seconds == (
        pytest.approx(2 * SENT + WORK)
    )


def test_without_overlap_everything_takes_its_turn() -> None:
    script = Script(resident=(), items=(SEND, KERNEL))
    timing = walk(script, GPU, WIRES, overlaps=False)
    assert timing.step_seconds == pytest.approx(SENT + WORK)
    assert timing.communication_seconds == pytest.approx(SENT)


def test_a_repeat_takes_its_turns() -> None:
    timing = _walk(Repeat(items=(SEND, replace(KERNEL, waits=("all-gather",))), times=100))
    assert timing.step_seconds == pytest.approx(100 * SENT + WORK)
    assert timing.communication_seconds == pytest.approx(100 * SENT)
    assert timing.compute_seconds == pytest.approx(100 * WORK)


def test_a_repeat_catches_up_once_with_a_stream_that_is_ahead() -> None:
    """Its first copy waits for the all-gather; the other ninety-nine find it done."""
    waiting = replace(KERNEL, waits=("all-gather",))
    timing = _walk(SEND, Repeat(items=(waiting,), times=100))
    assert timing.step_seconds == pytest.approx(SENT + 100 * WORK)


def _walk(*items: Item) -> Timing:
    return walk(Script(resident=(), items=items), GPU, WIRES)
