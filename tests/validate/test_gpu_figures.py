"""The path that a GPU takes, with a stand-in for what only a GPU has: allocator, events, driver.

The steps are real ones on CPU tensors; the stand-in allocator is a ledger.
"""

from collections.abc import Iterator
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.spec.toml import load_spec
from zeroplan.validate.quiet import quiet

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own, when its parts are imported
]

torch = pytest.importorskip("torch")

RESERVED = 2**30
DEVICE = torch.device("cpu")


@pytest.fixture
def parts() -> SimpleNamespace:
    """What imports PyTorch's parts, whose warnings are no test's."""
    from zeroplan.validate.pytorch import (  # noqa: PLC0415
        environment,
        gpu,
        ledger,
        meters,
        pretend,
        setup,
    )

    return SimpleNamespace(
        **vars(environment) | vars(gpu) | vars(ledger) | vars(meters) | vars(pretend) | vars(setup)
    )


class Event:
    """An event of a stream that is the host's."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        return (end.at - self.at) * 1e3


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch, parts: SimpleNamespace) -> Iterator[Any]:
    """A ledger that answers for the allocator."""
    kept = parts.Ledger()

    def restart(_: object) -> None:
        kept.forget()
        kept.begin("forward")

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: kept.total)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: kept.peaks["forward"][0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", restart)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: RESERVED)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (RESERVED, 3 * RESERVED))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    with kept, kept.following_resizes():
        yield kept


def test_a_gpu_s_figures_are_complete_and_agree(
    llama: str, ledger: Any, parts: SimpleNamespace
) -> None:
    asked = load_spec(model=llama, gpus=8, strategy="fsdp2", sequence_length=64)
    question = resolve(asked)
    plan = plan_for(question, question.strategies[0], {})
    stages: list[str] = []
    with quiet(), parts.fake_group(8, 0), parts.by_reference_counts():
        setup = parts.make_setup(parts.make_subject(question, plan, "own"), plan, None, ledger)
        parts.with_single_copies(setup.module)
        found = parts.figures(setup, DEVICE, stages.append, alone=True)
    allocated = found.memory.peak_allocated_bytes
    assert allocated is not None
    assert allocated.repeats == 3
    peaks = found.step.peak_by_phase_bytes
    highest = max(peaks.forward, peaks.backward, peaks.optimizer)
    assert highest == pytest.approx(allocated.median, rel=0.01)
    assert found.memory.reserved_bytes is not None
    assert found.memory.reserved_bytes.median == RESERVED
    assert found.memory.device_bytes is not None
    assert found.memory.device_bytes.median == 2 * RESERVED
    assert found.time.step_seconds is not None
    assert found.time.step_seconds.repeats == 10
    assert found.time.compute_seconds == found.time.step_seconds
    assert found.time.exposed_communication_seconds is None
    assert [call.name for call in found.step.collectives] == [
        "all_gather",
        "all_gather",
        "reduce_scatter",
    ]
    assert stages == ["warm-up", "memory", "timed steps", "watched steps"]


def test_a_profiler_that_sees_no_kernel_leaves_communication_open(
    llama: str, ledger: Any, parts: SimpleNamespace
) -> None:
    asked = load_spec(model=llama, gpus=1, strategy="none", precision="bf16", sequence_length=64)
    question = resolve(asked)
    plan = plan_for(question, question.strategies[0], {})
    with quiet(), parts.fake_group(1, 0), parts.by_reference_counts():
        setup = parts.make_setup(parts.make_subject(question, plan, "own"), plan, None, ledger)
        found = parts.figures(setup, DEVICE, lambda _: None, alone=False)
    assert found.time.step_seconds is not None
    assert found.time.communication_seconds is None
    assert found.time.compute_seconds is None
    assert found.collectives == ()


def test_events_are_told_in_seconds(
    monkeypatch: pytest.MonkeyPatch, parts: SimpleNamespace
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = parts.Clock(torch.device("cuda"))
    clock.mark()
    marks: list[tuple[Any, float]] = [("forward", 0.1), ("optimizer", 0.7), (None, 1.0)]
    for phase, at in marks:
        clock.mark(phase)
        clock.marks[-1][1].at = at
    clock.marks[0][1].at = 0.0
    steps, updates = clock.seconds()
    assert steps == pytest.approx([1.0])
    assert updates == pytest.approx([0.3])


@pytest.mark.usefixtures("ledger")
def test_an_allocator_s_peaks_are_told_by_phase(parts: SimpleNamespace) -> None:
    meter = parts.AllocatorMeter(DEVICE)
    meter.begin("forward")
    kept = torch.empty(1024)
    meter.begin("backward")
    more = torch.empty(1024)
    del more
    meter.begin("optimizer")
    assert {phase: level for phase, (level, _) in meter.peaks.items()} == {
        "forward": 4096,
        "backward": 8192,
        "optimizer": 4096,
    }
    assert meter.bytes_of([kept, kept[:3]]) == 4096
    meter.forget()
    assert meter.peaks == {}


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79"
            ),
            int(2.5 * 2**30),
        ),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                "8192 bytes. Error code 12"
            ),
            8192,
        ),
        (MemoryError(), None),
    ],
)
def test_the_allocation_that_failed_is_told(
    error: Exception, size: int | None, parts: SimpleNamespace
) -> None:
    found = parts.out_of_memory(error)
    assert found is not None
    assert (found.kind, found.requested_bytes) == ("oom", size)


def test_another_error_is_not_taken_for_it(parts: SimpleNamespace) -> None:
    assert parts.out_of_memory(RuntimeError("No available kernel. Aborting execution.")) is None
