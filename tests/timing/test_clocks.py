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
from zeroplan.timing.host import HostPrice
from zeroplan.timing.walk import Timing, walk

QUESTION = resolve(load_spec(model="smollm-135m", gpus=16))
GPU: GpuPrice = replace(gpu_price(QUESTION.gpu, "bf16"), overlap_slowdown=0.0)
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


def test_a_communicator_runs_one_collective_at_a_time() -> None:
    """FSDP2's all-gathers and reduce-scatters have two streams and one communicator."""
    beside = replace(SEND, stream="reduce-scatter")
    assert _walk(SEND, beside).step_seconds == pytest.approx(2 * SENT)
    other = replace(GATHER, group=replace(GATHER.group, name="replicate"))
    apart = replace(beside, collective=other)
    assert _walk(SEND, apart).step_seconds == pytest.approx(SENT)


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


def test_kernels_take_longer_while_a_collective_runs_beside_them() -> None:
    """As long as it runs: a longer kernel catches up once the collective has ended."""
    price = replace(GPU, overlap_slowdown=0.5)
    beside = walk(Script(resident=(), items=(SEND, KERNEL)), price, WIRES)
    assert beside.compute_seconds == pytest.approx(1.5 * WORK)
    longer = replace(KERNEL, traffic_bytes=4 * KERNEL.traffic_bytes)
    outlasting = walk(Script(resident=(), items=(SEND, longer)), price, WIRES)
    assert outlasting.step_seconds == pytest.approx(4 * WORK + 0.5 * SENT)
    after = walk(Script(resident=(), items=(longer, SEND)), price, WIRES)
    assert after.compute_seconds == pytest.approx(4 * WORK)


def test_a_kernel_does_not_end_before_the_host_has_issued_it() -> None:
    host = HostPrice(backward_seconds=2 * WORK)
    launched = replace(KERNEL, launches=1)
    timing = walk(Script(resident=(), items=(launched,) * 3), GPU, WIRES, host)
    assert timing.step_seconds == pytest.approx(6 * WORK)
    assert timing.host_seconds == pytest.approx(3 * WORK)
    assert timing.exposed_communication_seconds == pytest.approx(0.0)


def test_a_host_that_is_ahead_costs_nothing() -> None:
    """It is held up once, by what it issues before the first kernel."""
    host = HostPrice(backward_seconds=WORK / 4)
    launched = replace(KERNEL, launches=1)
    timing = walk(Script(resident=(), items=(launched,) * 9), GPU, WIRES, host)
    assert timing.step_seconds == pytest.approx(9 * WORK)


def test_a_repeat_is_bound_by_its_host_as_often_as_it_runs() -> None:
    host = HostPrice(backward_seconds=2 * WORK)
    repeat = Repeat(items=(replace(KERNEL, launches=1),), times=100)
    timing = walk(Script(resident=(), items=(repeat,)), GPU, WIRES, host)
    assert timing.step_seconds == pytest.approx(200 * WORK)
    assert timing.host_seconds == pytest.approx(100 * WORK)


def _walk(*items: Item) -> Timing:
    return walk(Script(resident=(), items=items), GPU, WIRES)
