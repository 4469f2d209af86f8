"""What tests share: a made-up answer, commands in a process group, and skips without torch."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import settings

from zeroplan.estimation.record import (
    Assumption,
    Collective,
    Communication,
    Estimate,
    Memory,
    PeakBreakdown,
    PhasePeaks,
    StrategyEstimate,
    Time,
    Verdict,
)
from zeroplan.spec.run import Strategy
from zeroplan.spec.toml import load_spec

GIB = 2**30

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers of xdist share the cores already

settings.register_profile("untimed", deadline=None)  # a busy machine breaks no law
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the width and the colours of the terminal out, from which tests are started."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch") and find_spec("torch") is None:
        pytest.skip("marked `torch`, which is not installed: pip install '.[validate]'")


@pytest.fixture
def in_own_group() -> Callable[..., AbstractContextManager[subprocess.Popen[str]]]:
    """Return what starts `zeroplan` in a process group of its own, none of which outlives its use."""
    return _in_own_group


@contextmanager
def _in_own_group(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with _heeding_interrupts():
        started = subprocess.Popen(
            [sys.executable, "-m", "zeroplan", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


@contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """Let what is started be interrupted where the shell of a background job had that ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def answer() -> Estimate:
    """DDP that does not fit, ZeRO-3 that just does, FSDP2 that fits."""
    return Estimate(
        inputs=load_spec(model="llama-3.1-8b", gpus=64, sequence_length=4096, link="ib-ndr400"),
        total_parameters=8_030_261_248,
        trainable_parameters=8_030_261_248,
        assumptions=(
            Assumption(
                name="cuda_context_bytes",
                value=500_000_000,
                unit="B",
                kind="assumed",
                source="PyTorch issues 107667 and 109888",
            ),
            Assumption(
                name="hbm_bytes_per_second",
                value=3.35e12,
                unit="B/s",
                kind="datasheet",
                source="the datasheet",
            ),
        ),
        notes=("sharding.bucket_bytes is ignored: <ddp> only.",),
        estimates=(
            _estimate("ddp", "does_not_fit", gib=130, seconds=1.5),
            _estimate("zero3", "tight", gib=77, seconds=1.25),
            _estimate("fsdp2", "fits", gib=40, seconds=1.0),
        ),
    )


@pytest.fixture
def nothing_fits(answer: Estimate) -> Estimate:
    """The same with nothing that fits."""
    return replace(answer, estimates=answer.estimates[:1])


def _estimate(
    strategy: Strategy, verdict: Verdict, *, gib: int, seconds: float
) -> StrategyEstimate:
    breakdown = PeakBreakdown(
        parameters=10 * GIB,
        unsharded_parameters=2 * GIB,
        gradients=0,
        unsharded_gradients=GIB,
        optimizer=8 * GIB,
        activations=(gib - 30) * GIB,
        loss=GIB,
        all_gather_buffers=2 * GIB,
        reduce_scatter_buffers=2 * GIB,
        temporaries=3 * GIB,
        workspaces=GIB // 2,
        other=GIB // 2,
    )
    return StrategyEstimate(
        strategy=strategy,
        verdict=verdict,
        memory=Memory(
            parameters_bytes=10 * GIB,
            gradients_bytes=5 * GIB,
            optimizer_bytes=8 * GIB,
            peak_tensor_bytes=gib * GIB - GIB // 2,
            peak_allocated_bytes=gib * GIB,
            peak_moment="backward, block 31",
            peak_breakdown_bytes=breakdown,
            peak_by_phase_bytes=PhasePeaks(
                forward=(gib - 5) * GIB, backward=gib * GIB - GIB // 2, optimizer=20 * GIB
            ),
            reserved_bytes=(gib + 1) * GIB,
            device_bytes=(gib + 2) * GIB,
            usable_bytes=79 * GIB,
            headroom_bytes=(77 - gib) * GIB,
            host_bytes=30 * GIB,
            host_load_bytes=250 * GIB,
            host_save_bytes=62 * GIB,
            nvme_bytes=0,
            checkpoint_bytes=90 * GIB,
            host_memory_bytes=None,
            host_verdict=None,
        ),
        communication=Communication(
            collectives=(
                Collective(
                    name="all_gather",
                    phase="forward",
                    group="shard",
                    count=33,
                    input_bytes=GIB // 64,
                    output_bytes=GIB,
                    wire_bytes=GIB * 63 // 64,
                    seconds=0.25,
                ),
                Collective(
                    name="all_gather",
                    phase="backward",
                    group="shard",
                    count=33,
                    input_bytes=GIB // 64,
                    output_bytes=GIB,
                    wire_bytes=GIB * 63 // 64,
                    seconds=0.125,
                ),
            ),
            wire_bytes=2 * (GIB * 63 // 64),
            inter_node_wire_bytes=GIB // 4,
        ),
        time=Time(
            step_seconds=seconds,
            compute_seconds=0.75,
            optimizer_seconds=0.03125,
            communication_seconds=0.375,
            exposed_communication_seconds=0.09375,
            offload_seconds=0.0,
            exposed_offload_seconds=0.0,
            low_seconds=seconds * 0.875,
            high_seconds=seconds * 1.125,
            bound_by="compute",
            tokens_per_second_per_gpu=4096 / seconds,
            model_flops_utilization=0.4375,
            hardware_flops_utilization=None,
        ),
    )
