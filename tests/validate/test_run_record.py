"""The record of a run: written whole, read back as it was, refused with the place of its fault."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation.record import PhasePeaks
from zeroplan.spec.toml import load_spec
from zeroplan.validate.measurement import (
    BusTime,
    CollectivePoint,
    CopyPoint,
    Machine,
    Measured,
    MeasuredMemory,
    MeasuredTime,
    MicroBenches,
    Outcome,
    ProductPoint,
    RunRecord,
    Spread,
    spread,
)
from zeroplan.validate.reading import read_record
from zeroplan.validate.record import Calls, Held, Observation

TIME = Spread(median=0.2, low=0.1, high=0.4, repeats=5)
STEP = Observation(
    peak_by_phase_bytes=PhasePeaks(forward=1000, backward=2000, optimizer=1500),
    moments=("a", "b", "c"),
    peak_before_update_bytes=None,
    held_bytes=Held(
        parameters=400, optimizer=800, inputs_and_buffers=8, after_forward=300, gradients=400
    ),
    step_seconds=(0.1, 0.2, 0.4),
    collectives=(
        Calls(name="all_gather", phase="forward", count=4, input_bytes=50, output_bytes=400),
    ),
)
RECORD = RunRecord(
    inputs=load_spec(model="llama-3.1-8b", gpus=8, strategy="fsdp2"),
    model_file=None,
    backend="cuda",
    pretended=False,
    model_class="own",
    machine=Machine(
        gpu="NVIDIA H200",
        gpu_memory_bytes=150_754_820_096,
        driver="570.1",
        cpu="a CPU",
        cores=16,
        system="Linux 6.1 x86_64",
    ),
    versions={"torch": "2.13.0"},
    date="2026-01-31",
    notes=("a note",),
    outcome=Outcome(kind="ok"),
    measured=Measured(
        step=STEP,
        memory=MeasuredMemory(peak_allocated_bytes=spread([2000.0, 2000.0])),
        time=MeasuredTime(step_seconds=TIME),
        collectives=(
            BusTime(
                name="all_gather",
                ranks=8,
                count=4,
                input_bytes=50,
                output_bytes=400,
                seconds=TIME,
            ),
        ),
        micro_benches=MicroBenches(
            collectives=(
                CollectivePoint(
                    collective="all_reduce",
                    n_gpus=8,
                    gpus_per_node=8,
                    n_nodes=1,
                    message_bytes=1024,
                    in_place=True,
                    seconds=TIME,
                ),
            ),
            products=(ProductPoint(rows=1, inner=2, columns=3, dtype="bf16", seconds=TIME),),
            copies=(CopyPoint(bytes=1024, seconds=TIME),),
        ),
    ),
)

Write = Callable[[Any], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes a document and returns its path."""

    def written(document: Any) -> Path:
        path = tmp_path / "run.json"
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_text(text)
        return path

    return written


def test_a_record_reads_back_as_it_was(write: Write) -> None:
    assert read_record(write(RECORD.to_dict())) == RECORD


def test_a_run_that_failed_has_no_figures(write: Write) -> None:
    failed = replace(
        RECORD,
        outcome=Outcome(kind="oom", reason="Tried to allocate 2 GiB", requested_bytes=2**31),
        measured=None,
    )
    assert read_record(write(failed.to_dict())) == failed


def test_a_spread_is_median_lowest_and_highest() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0, repeats=3)


def test_a_record_that_is_cut_short_is_refused(write: Write) -> None:
    text = json.dumps(RECORD.to_dict())
    for length in (0, 1, len(text) // 2, len(text) - 1):
        with pytest.raises(SpecError, match="cut short"):
            read_record(write(text[:length]))


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused(write: Write, version: object) -> None:
    with pytest.raises(SpecError, match="schema_version"):
        read_record(write({**RECORD.to_dict(), "schema_version": version}))


def _changed(path: str, value: object) -> dict[str, Any]:
    document: Any = RECORD.to_dict()
    document = json.loads(json.dumps(document))
    *way, last = path.split(".")
    place = document
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[last] = value
    return dict(document)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("machine.cores", "16", 'machine.cores = "16": expected a whole number'),
        ("machine.cores", True, "machine.cores = true: expected a whole number"),
        ("machine", None, "machine = null: expected a table"),
        ("backend", "tpu", "backend = .tpu.: expected one of fake, cpu, cuda"),
        ("measured.time.step_seconds.median", "fast", "measured.time.step_seconds.median"),
        ("measured.collectives.0.count", 1.5, r"measured.collectives\[0\].count = 1.5"),
        ("measured.collectives", {}, "measured.collectives = {}: expected a list"),
        ("versions.torch", 2, "versions.torch = 2: expected text"),
        ("inputs.cluster.gpus", "many", "inputs.cluster.gpus"),
        ("inputs", 3, "inputs: expected a table"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(
    write: Write, path: str, value: object, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        read_record(write(_changed(path, value)))


def test_what_is_missing_is_told(write: Write) -> None:
    document = RECORD.to_dict()
    del document["outcome"]
    with pytest.raises(SpecError, match="outcome: missing"):
        read_record(write(document))


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"schema_version": NaN}', "[" * 10**5])
def test_what_is_no_record_is_refused(write: Write, text: str) -> None:
    with pytest.raises(SpecError):
        read_record(write(text))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        read_record(tmp_path / "none.json")
