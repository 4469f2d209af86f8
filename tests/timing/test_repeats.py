"""A script that tells equal blocks once takes as long as the same script written out, and less work.

Whatever bounds the step: kernels, the host that issues them, or the links.
"""

from dataclasses import replace
from typing import Any

import pytest

from zeroplan.comm.fabric import Fabric
from zeroplan.compute.gpu import GpuPrice, gpu_price
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.records import fields
from zeroplan.schedule import script
from zeroplan.schedule.events import Collective, Event, Repeat, Script
from zeroplan.sharding.groups import contiguous
from zeroplan.spec.toml import load_spec
from zeroplan.timing import walk as clocks
from zeroplan.timing.host import HostPrice, host_price
from zeroplan.timing.walk import Timing, walk

BOUND: dict[str, tuple[dict[str, Any], float]] = {
    "kernels": ({"sequence_length": 8192, "link": "ib-xdr800"}, 0.1),
    "host": ({"sequence_length": 64, "link": "ib-xdr800"}, 20.0),
    "links": ({"sequence_length": 512, "link": "ethernet-1g"}, 1.0),
}
"""Keys of a run, and how slow the host is."""

RELATIVE = 1e-12


@pytest.mark.parametrize("micro_steps", [1, 4])
@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero3", "fsdp1", "fsdp2", "hsdp"])
@pytest.mark.parametrize("bound", BOUND)
def test_repeats_take_as_long_as_what_they_stand_for(
    bound: str, strategy: str, micro_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, slowness = BOUND[bound]
    question = resolve(
        load_spec(
            model="llama-3.1-8b",
            gpus=64,
            strategy=strategy,
            gradient_accumulation_steps=micro_steps,
            **keys,
        )
    )
    row = question.strategies[0]
    step = script(plan_for(question, row, {}))
    plain = replace(step, items=tuple(event for event, _ in step.unrolled()))
    host = host_price(row, compiled=False)
    host = HostPrice(**{each.name: slowness * getattr(host, each.name) for each in fields(host)})
    asked = gpu_price(question.gpu, "bf16"), question.wires, host
    passed = _passed(monkeypatch)
    found = walk(step, *asked)
    assert len(passed) < 4 * len(list(step.calls()))
    expected = walk(plain, *asked)
    _same(found, expected)
    shares = {
        "kernels": expected.compute_seconds - expected.host_seconds,
        "host": expected.host_seconds,
        "links": expected.exposed_communication_seconds,
    }
    assert max(shares, key=lambda name: shares[name]) == bound


def test_a_stream_that_is_ahead_is_caught_up_with_in_the_midst_of_a_repeat() -> None:
    """The collective slows the kernels beside it, though the host hides it from every clock."""
    wires: Fabric = resolve(load_spec(model="smollm-135m", gpus=16)).wires
    price: GpuPrice = replace(
        gpu_price(resolve(load_spec(model="smollm-135m", gpus=16)).gpu, "bf16"),
        overlap_slowdown=0.5,
    )
    send = Event(
        name="all-reduce",
        phase="backward",
        stream="all-reduce",
        owner="block",
        collective=Collective(
            name="all_reduce",
            group=contiguous("world", 16, 8),
            input_bytes=2**30,
            output_bytes=2**30,
        ),
    )
    kernel = Event(
        name="kernel",
        phase="backward",
        stream="compute",
        owner="block",
        traffic_bytes=1e-4 * price.bytes_per_second,
        launches=1,
    )
    host = HostPrice(backward_seconds=2e-4)
    repeat = Repeat(items=(kernel,), times=1000)
    found = walk(Script(resident=(), items=(send, repeat)), price, wires, host)
    expected = walk(Script(resident=(), items=(send, *[kernel] * 1000)), price, wires, host)
    assert 1e-3 < expected.communication_seconds < 0.1
    _same(found, expected)


def _passed(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Note every event that is walked over."""
    passed: list[Event] = []
    walked = clocks.Walk.take  # how often it is called is what is tested

    def noted(self: Any, event: Event) -> None:
        passed.append(event)
        walked(self, event)

    monkeypatch.setattr(clocks.Walk, "take", noted)
    return passed


def _same(found: Timing, expected: Timing) -> None:
    near = RELATIVE * expected.step_seconds
    for each in fields(expected):
        seconds = getattr(expected, each.name)
        assert getattr(found, each.name) == pytest.approx(seconds, rel=RELATIVE, abs=near)
