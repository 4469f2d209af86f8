"""DeepSpeed's schedules against what the real one sends and holds.

deepspeed_measured.json: DeepSpeed 0.19.8 and torch 2.13.0 on two to four CPU ranks with gloo, the
rank that keeps most gradients, by deepspeed_on_cpu.py beside it. Every storage is rounded up to
512 bytes as on CUDA; left out is what gloo copies inside a collective, and what CUDA's fused
RMSNorm does not allocate. Peaks are the highest of the fourth step's forwards, backwards, updates.
deepspeed_offloaded.json: the same with DeepSpeed's offloading. A row of either is what each rank of
`CASES='[{"name": ..., "strategy": ..., ...}]' RANK=0 WORLD_SIZE=2 ... python deepspeed_on_cpu.py`
is given, with what rank 0 prints; `run_on_two_ranks` below has the whole environment.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from zeroplan.memory.walk import peaks
from zeroplan.schedule import script
from zeroplan.schedule.events import Script
from zeroplan.schedule.plan import Plan

Case = dict[str, Any]

HERE = Path(__file__).parent
OFFLOADED: list[Case] = json.loads((HERE / "deepspeed_offloaded.json").read_text())["cases"]
CASES: list[Case] = [
    *json.loads((HERE / "deepspeed_measured.json").read_text())["cases"],
    *OFFLOADED,
]
TOLERANCE = 1e-3
"""Scalars of the loss and of the norm are left out; the toy model's states are 30 MB."""
RESIDENT = 5 * 1024
"""Scalars that the last step left, where no parameters are on the GPU: at most ten. [B]"""
SMALL_BUCKET = "ZeRO-3 with parameters, small bucket, offloaded"
SCALARS = 2 * 512
"""Two of them, which are 0.24 % of its update's peak: nothing but a bucket is on the GPU. [B]"""
NORMS = 9 * 512
"""Norms that the observer sees on the host where several ranks divide parameters. [B]"""
COUNTER = 4
"""Steps of the offloaded optimizer, which the observer sees there. [B]"""
AGAIN = ("ZeRO-1", "ZeRO-2 gas3", "ZeRO-3", "ZeRO-3 checkpointed")
AGAIN_OFFLOADED = ("ZeRO-2, offloaded", "ZeRO-3 with parameters, offloaded")


def calls(written: Script) -> dict[str, list[int]]:
    """Sum collectives by phase and name: count, bytes in, bytes out."""
    found: dict[str, list[int]] = {}
    for event, times in written.calls():
        call = event.collective
        if call is not None:
            row = found.setdefault(f"{event.phase} {call.name}", [0, 0, 0])
            for place, size in enumerate((1, call.input_bytes, call.output_bytes)):
                row[place] += times * int(size)
    return found


def held(written: Script) -> dict[str, int]:
    """Return each phase's peak."""
    return {phase: int(peak.bytes) for phase, peak in peaks(written).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
class TestAMeasuredStep:
    def test_sends_the_same_in_the_same_number_of_calls(
        self, case: Case, deepspeed_plan: Callable[..., Plan]
    ) -> None:
        assert calls(script(deepspeed_plan(**case))) == case["calls"]

    def test_holds_as_much_at_rest_and_at_the_peak_of_each_phase(
        self, case: Case, deepspeed_plan: Callable[..., Plan]
    ) -> None:
        written = script(deepspeed_plan(**case))
        resident = sum(change.bytes for change in written.resident)
        left_by_a_step = RESIDENT if "param" in case.get("offload", {}) else 0
        assert resident == pytest.approx(case["resident"], rel=TOLERANCE, abs=left_by_a_step)
        scalars = SCALARS if case["name"] == SMALL_BUCKET else 0
        assert held(written) == pytest.approx(case["peaks"], rel=TOLERANCE, abs=scalars)


@pytest.mark.parametrize("case", OFFLOADED, ids=lambda case: case["name"])
def test_an_offloaded_step_holds_as_much_on_the_host(
    case: Case, deepspeed_plan: Callable[..., Plan]
) -> None:
    """What an update needs for a while is not there between steps."""
    kept = (b for b in script(deepspeed_plan(**case)).host if b.name != "optimizer step")
    found = sum(each.bytes * each.times for each in kept)
    seen = 0
    if case["strategy"] == "zero3":
        several = case.get("ranks", 2) > 1
        seen = NORMS * several + COUNTER * ("optimizer" in case["offload"])
    assert found == case["host"] - seen


def test_the_figures_are_from_all_stages() -> None:
    assert {case["strategy"] for case in CASES} == {"zero0", "zero1", "zero2", "zero3"}


@pytest.mark.slow
@pytest.mark.torch
def test_deepspeed_itself_still_sends_and_holds_what_was_measured() -> None:
    """Needs deepspeed 0.19.8 beside torch; two processes, about a minute."""
    if find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    for names in (AGAIN, AGAIN_OFFLOADED):
        cases = [case for case in CASES if case["name"] in names]
        for case, measured in zip(cases, run_on_two_ranks(cases), strict=True):
            assert measured["calls"] == case["calls"]
            assert measured["peaks"] == pytest.approx(case["peaks"], rel=TOLERANCE)
            assert measured.get("host") == case.get("host")


def run_on_two_ranks(cases: list[Case]) -> list[Case]:
    """Run real DeepSpeed on two CPU ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "deepspeed_on_cpu.py")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "CASES": json.dumps(cases),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "WORLD_SIZE": "2",
                "LOCAL_SIZE": "2",
                "RANK": rank,
                "LOCAL_RANK": rank,
                "DS_ACCELERATOR": "cpu",
                "DS_BUILD_OPS": "0",
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in ("0", "1")
    ]
    lines = ranks[0].communicate()[0].splitlines()
    ranks[1].communicate()
    return [json.loads(x.removeprefix("MEASURED ")) for x in lines if x.startswith("MEASURED ")]
